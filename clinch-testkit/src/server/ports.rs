//! Ports for servers and proxies.
//!
//! They are taken from below the range that the kernel uses for outgoing connections. A port from that range
//! could be given to some client while its server is down, and a client that keeps connecting to it could
//! even be connected to itself (a TCP simultaneous open), and take its own requests for replies.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The lowest port that is given out.
const LOWEST: u32 = 10_000;

/// A listener on a free port of 127.0.0.1.
pub(crate) fn listen() -> TcpListener {
    // Processes start at different places, so that they rarely try for the same port.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(101);
    let ports = first_outgoing_port().saturating_sub(LOWEST);

    for _ in 0..ports {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = LOWEST + start.wrapping_add(step) % ports;
        let listener =
            u16::try_from(port).ok().and_then(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        if let Some(listener) = listener {
            return listener;
        }
    }
    // The kernel's range leaves no room below (or all is taken): a port from that range is better than none.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("no free port on 127.0.0.1")
}

/// A port that was free a moment ago. Whoever binds it must be prepared to find it taken.
pub(crate) fn free_port() -> u16 {
    listen().local_addr().expect("a listener has an address").port()
}

fn first_outgoing_port() -> u32 {
    const LINUX_DEFAULT: u32 = 32_768;
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(LINUX_DEFAULT)
}
