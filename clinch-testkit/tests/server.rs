//! `RedisServer` against the real thing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clinch_testkit::server::{RedisServer, Reply};

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Looks again until it holds; a bound, not a measure.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_answers_and_ends_with_its_value() {
    let server = RedisServer::start();
    let pid = server.pid();
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    assert!(server.version().major >= 6, "{}", server.version());
    assert!(is_alive(pid));
    let folder = server.folder().to_owned();

    drop(server);

    assert!(!is_alive(pid));
    assert!(!folder.exists());
}

#[test]
fn a_server_ends_when_its_test_panics_even_while_stopped() {
    let (sender, pid) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = RedisServer::start();
        sender.send(server.pid()).unwrap();
        server.stop();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    assert!(!is_alive(pid.recv().unwrap()));
}

/// Not a test: what `a_server_does_not_outlive_a_killed_test_process` runs in a process of its own.
#[test]
#[ignore = "run by another test"]
fn helper_starts_a_server_and_waits_to_be_killed() {
    // From a thread that ends: the server must not end with it.
    let server = std::thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
    println!("\nfolder={}\nport={}", server.folder().display(), server.port());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_server_does_not_outlive_a_killed_test_process() {
    if !Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("no setpriv here, so a killed test process leaves its server behind");
        return;
    }
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_starts_a_server_and_waits_to_be_killed", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let mut line =
        |prefix: &str| lines.find_map(|line| line.unwrap().strip_prefix(prefix).map(str::to_owned)).unwrap();
    let (folder, port) = (line("folder="), line("port=").parse::<u16>().unwrap());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());

    helper.kill().unwrap();
    helper.wait().unwrap();

    eventually("the server is gone", || TcpStream::connect(("127.0.0.1", port)).is_err());
    std::fs::remove_dir_all(folder).unwrap(); // nobody else is left to do it
}

#[test]
fn a_stopped_server_answers_when_it_is_continued() {
    let server = RedisServer::start();
    let mut client = TcpStream::connect(server.addr()).unwrap();
    server.stop();
    client.write_all(b"PING\r\n").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(client.read(&mut [0; 16]).is_err(), "a stopped server answered");

    server.cont();

    client.set_read_timeout(None).unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    server.stop();
    server.cont();
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn without_persistence_a_restart_loses_everything() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    server.set("key", "value");
    server.kill();
    assert!(!server.is_running());
    assert!(server.try_command(&["PING"]).is_err());

    server.restart();

    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.get("key"), None);
}

#[test]
fn an_append_only_file_survives_kill_and_shutdown() {
    let server = RedisServer::builder().appendonly(true).start();
    server.set("key", "value");
    server.kill();
    server.restart();
    assert_eq!(server.get("key").as_deref(), Some("value"));
    server.shutdown_nosave();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.get("key").as_deref(), Some("value"));
}

#[test]
fn password_and_users() {
    let server =
        RedisServer::builder().password("p \"w\"/@").acl_user("app", "on >secret ~app:* &* +@all").start();
    server.set("key", "value");
    assert_eq!(server.url(), format!("redis://:p%20%22w%22%2F%40@127.0.0.1:{}/", server.port()));

    let mut client = TcpStream::connect(server.addr()).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap()).lines();
    let mut ask = |line: &str| {
        client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        answers.next().unwrap().unwrap()
    };
    assert!(ask("GET key").starts_with("-NOAUTH"));
    assert_eq!(ask("AUTH app secret"), "+OK");
    assert_eq!(ask("SET app:1 x"), "+OK");
    assert!(ask("GET key").starts_with("-NOPERM"));
}

#[test]
fn a_unix_socket() {
    let server = RedisServer::builder().unix_socket(true).start();
    let url = server.unix_url();
    let mut client = UnixStream::connect(url.strip_prefix("redis+unix://").unwrap()).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn tls_with_a_certificate_that_the_authority_signed() {
    if !RedisServer::supports_tls() {
        println!("this server was built without TLS");
        assert!(std::panic::catch_unwind(|| RedisServer::builder().tls(true).start()).is_err());
        return;
    }
    let server = RedisServer::builder().tls(true).start();
    assert!(server.ca_pem().starts_with("-----BEGIN CERTIFICATE-----"));
    let address = server.tls_url().strip_prefix("rediss://").unwrap().trim_end_matches('/').to_owned();
    let ca = server.folder().join("my-ca.pem");
    std::fs::write(&ca, server.ca_pem()).unwrap();

    for name in [["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"]] {
        let client = Command::new("openssl")
            .args(["s_client", "-4", "-quiet", "-verify_return_error", "-connect", &address, "-CAfile"])
            .arg(&ca)
            .args(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut client) = client else {
            println!("no openssl here to try the handshake with");
            return;
        };
        client.stdin.take().unwrap().write_all(b"PING\r\nQUIT\r\n").unwrap();
        let output = client.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(out.contains("+PONG"), "{out}{err}");
    }
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = RedisServer::builder().password("pw").start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    primary.set("key", "value");
    assert_eq!(primary.command(&["WAIT", "1", "10000"]), Reply::Int(1));
    assert_eq!(replica.get("key").as_deref(), Some("value"));
    let refused = replica.command(&["SET", "key", "other"]);
    assert!(refused.is_error() && refused.text().unwrap().starts_with("READONLY"), "{refused:?}");
}

#[test]
fn peeking_and_poking() {
    let server = RedisServer::builder().arg("maxmemory", "100mb").arg("save", "").start();
    server.set("a", "1");
    server.set("b", "2");
    assert_eq!(server.keys("*"), ["a", "b"]);
    assert!(server.exists("a") && !server.exists("c"));
    assert_eq!((server.pttl("a"), server.pttl("c")), (-1, -2));
    server.command(&["PEXPIRE", "a", "60000"]);
    assert!((1..=60_000).contains(&server.pttl("a")));
    assert_eq!(server.command(&["MGET", "b", "c"]).clone(), {
        Reply::Array(vec![Reply::Bulk(Some(b"2".into())), Reply::Bulk(None)])
    });

    server.config_set("maxmemory-policy", "noeviction");
    assert_eq!(server.info("memory")["maxmemory"], (100 * 1024 * 1024).to_string());
    server.command(&["EVAL", "return 1", "0"]);
    let sha = server.command(&["SCRIPT", "LOAD", "return 1"]).text().unwrap();
    assert_eq!(server.command(&["EVALSHA", &sha, "0"]), Reply::Int(1));
    server.script_flush();
    assert!(server.command(&["EVALSHA", &sha, "0"]).text().unwrap().starts_with("NOSCRIPT"));
    assert_eq!(server.command_calls()["set"], 2);

    assert_eq!(server.connected_clients(), 0);
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(server.connected_clients(), 1);

    server.flushall();
    assert_eq!(server.keys("*"), [""; 0]);
    assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]), Reply::Simple("OK".into()));
}

#[test]
fn the_control_connection_comes_back_after_the_server_closed_it() {
    let server = RedisServer::start();
    server.set("counter", "1");
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.write_all(b"CLIENT KILL TYPE normal\r\n").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":1\r\n");
    assert_eq!(server.command(&["INCR", "counter"]), Reply::Int(2));
}
