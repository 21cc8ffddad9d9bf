//! Who is not behind a trusted proxy is known by the peer's address, whatever the headers say.
#![no_main]

use std::net::SocketAddr;

use clinch::http::{ClientAddress, Identify, PeerAddress, Sender, TrustedProxies};
use clinch::submit::Identity;
use http::{Extensions, HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: Vec<(bool, &[u8])>| {
    let mut headers = HeaderMap::new();
    for (standard, line) in lines {
        let name = if standard { "forwarded" } else { "x-forwarded-for" };
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    let from = |peer: [u8; 4]| {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress(SocketAddr::from((peer, 4000))));
        let proxies = TrustedProxies::parse(["10.0.0.0/8"]).expect("a network");
        ClientAddress::behind(proxies).identify(&Sender::new(&headers, &extensions, &|_| None))
    };
    assert_eq!(from([192, 0, 2, 1]), Some(Identity::address([192, 0, 2, 1].into())));
    let _ = from([10, 0, 0, 1]);
});
