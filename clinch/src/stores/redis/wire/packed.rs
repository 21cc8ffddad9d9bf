//! Commands as they go out.

use redis::Cmd;

/// How many answers there are to what goes out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Answers {
    One,
    /// So many, given to the caller as an array.
    Several(usize),
}

/// Commands, packed one behind the other.
#[derive(Debug)]
pub(in super::super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) answers: Answers,
}

impl Packed {
    /// One command of so many words, which take about so many bytes in all. What is sent for every lock is packed by hand.
    pub(in super::super) fn command(words: usize, bytes: usize) -> Self {
        let mut packed = Vec::with_capacity(bytes + 8 * (words + 1));
        header(&mut packed, b'*', words);
        Self { bytes: packed, answers: Answers::One }
    }

    /// The next word.
    pub(in super::super) fn word(self, word: &str) -> Self {
        self.joined([word])
    }

    /// The next word, put together of several.
    pub(in super::super) fn joined<const N: usize>(mut self, parts: [&str; N]) -> Self {
        header(&mut self.bytes, b'$', parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub(in super::super) fn number(mut self, number: u64) -> Self {
        let mut digits = [0; DIGITS];
        let digits = decimal(number, &mut digits);
        header(&mut self.bytes, b'$', digits.len());
        self.bytes.extend_from_slice(digits);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One command.
    pub(in super::super) fn one(command: &Cmd) -> Self {
        let mut bytes = Vec::new();
        command.write_packed_command(&mut bytes);
        Self { bytes, answers: Answers::One }
    }

    /// Several, whose answers are an array, also where it is only one.
    pub(in super::super) fn several<'a>(
        commands: impl IntoIterator<Item = std::borrow::Cow<'a, Cmd>>,
    ) -> Self {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for command in commands {
            command.write_packed_command(&mut bytes);
            count += 1;
        }
        Self { bytes, answers: Answers::Several(count) }
    }
}

/// The longest number.
const DIGITS: usize = 20;

fn header(packed: &mut Vec<u8>, kind: u8, number: usize) {
    // Nearly every word is short.
    if let Ok(number @ 0..100) = u8::try_from(number) {
        let (tens, ones) = (b'0' + number / 10, b'0' + number % 10);
        if number < 10 {
            packed.extend_from_slice(&[kind, ones, b'\r', b'\n']);
        } else {
            packed.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        return;
    }
    let mut digits = [0; DIGITS];
    packed.push(kind);
    packed.extend_from_slice(decimal(number as u64, &mut digits));
    packed.extend_from_slice(b"\r\n");
}

/// A number in digits, without the detour that formatting takes.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = DIGITS;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_by_hand_is_the_client_librarys() {
        for (number, length) in [(0, 0), (9, 9), (10, 10), (1234, 99), (u64::MAX, 100)] {
            let long = "ä".repeat(length) + "x";
            let mut command = redis::cmd("SET");
            command.arg("a:b").arg("").arg(&long).arg(number);
            let ours = Packed::command(5, 64).word("SET").joined(["a", ":", "b"]).word("").word(&long);
            assert_eq!(ours.number(number).bytes, command.get_packed_command());
        }
    }
}
