//! Slots: which part of a Cluster a key belongs to.

/// How many there are.
pub(super) const SLOTS: u16 = 16384;

/// The slot of a key or of a channel: of what stands in its first pair of braces, if there is something.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

const TABLE: [u16; 256] = table();

/// CRC-16 with the polynomial 0x1021 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ TABLE[usize::from(high ^ byte)]
    })
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let (mut at, mut first) = (0, 0_u16);
    while at < 256 {
        let (mut crc, mut bit) = (first << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
        first = first.wrapping_add(1);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, of) in [("foo", 12182), ("{user1000}.following", 3443), ("{user1000}.followers", 3443)] {
            assert_eq!(slot(key), of, "{key}");
        }
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
        assert_eq!(slot("clinch:fence:{clinch:lock:order:42}"), slot("clinch:lock:order:42"));
    }
}
