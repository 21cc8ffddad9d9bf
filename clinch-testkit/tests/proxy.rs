//! `FaultProxy` without rules: it changes nothing, counts everything, and its switches work.

mod common;

use std::io;
use std::time::Duration;

use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::{RedisServer, Reply};
use common::{Client, encoded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn server_and_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    (server, proxy)
}

#[tokio::test]
async fn commands_pass_however_they_are_cut_and_are_counted() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    assert_eq!(proxy.url(), format!("redis://127.0.0.1:{}/", proxy.addr().port()));

    client.send_all(&["SET a 1", "ping", "GET a", "GET b"]).await;
    client.expect("+OK\r\n+PONG\r\n$1\r\n1\r\n$-1\r\n").await;
    for byte in encoded("INCR a") {
        client.stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    client.expect(":2\r\n").await;

    assert_eq!((proxy.commands(), proxy.lease_commands()), (5, 4));
    assert_eq!((proxy.commands_named("get"), proxy.commands_named("PING")), (2, 1));
    let log = proxy.log();
    assert_eq!(
        log.iter().map(|command| command.name.as_str()).collect::<Vec<_>>(),
        ["SET", "PING", "GET", "GET", "INCR"]
    );
    assert_eq!((log[0].connection, log[0].ordinal, log[0].arg(1)), (0, 1, Some("1".into())));

    proxy.reset_counts();
    assert_eq!((proxy.commands(), proxy.log().len()), (0, 0));
    client.ask("GET a", "$1\r\n2\r\n").await;
    assert_eq!((proxy.commands(), proxy.log()[0].ordinal), (1, 6));
    assert_eq!(proxy.protocol_errors(), [""; 0]);
}

#[tokio::test]
async fn large_values_pass_both_ways() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    let large = "x".repeat(8 * 1024 * 1024);
    client.ask(&format!("SET large {large}"), "+OK\r\n").await;
    client.ask("GET large", &format!("${}\r\n{large}\r\n", large.len())).await;
    assert_eq!(server.command(&["STRLEN", "large"]), Reply::Int(8 * 1024 * 1024));
    assert_eq!(proxy.log()[0].args[1].len(), 128, "the log keeps long arguments short");
}

#[tokio::test]
async fn a_deep_pipeline_keeps_its_order() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    proxy.add(Rule::new(Action::ReplaceReply(b":-1\r\n".to_vec())).nth(4000));
    proxy.add(Rule::new(Action::Duplicate).nth(2000));
    client.send_all(&vec!["INCR n"; 5000]).await;
    // Number 2000 is executed twice and number 4000 not at all.
    let numbers = (1..=2000).chain(2002..=4000).chain([-1]).chain(4001..=5000);
    client.expect(&numbers.map(|n| format!(":{n}\r\n")).collect::<String>()).await;
    assert_eq!(proxy.commands(), 5000);
}

#[tokio::test]
async fn resp2_messages_belong_to_no_command() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    client.send("SUBSCRIBE a b").await;
    client
        .expect("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
        .await;
    assert_eq!(server.command(&["PUBLISH", "b", "hello"]), Reply::Int(1));
    client.expect("*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$5\r\nhello\r\n").await;

    proxy.add(Rule::new(Action::HoldRequest).named("PING"));
    proxy.add(Rule::new(Action::ReplaceReply(b"+mine\r\n".to_vec())).named("PING"));
    client.send_all(&["PING", "PING"]).await;
    proxy.wait_until_held().await;
    server.command(&["PUBLISH", "a", "x"]);
    client.expect("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n").await;
    proxy.release_held();
    client.expect("*2\r\n$4\r\npong\r\n$0\r\n\r\n+mine\r\n").await;

    client.send("UNSUBSCRIBE").await;
    client.stream.readable().await.unwrap();
    assert_eq!(proxy.lease_commands(), 0);
}

#[tokio::test]
async fn resp3_pushes_belong_to_no_command() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    proxy.add(Rule::new(Action::CutAfterRequest).named("SET"));
    // A map, an answer of the proxy's own, confirmations, a SUBSCRIBE that fails, and ordinary replies.
    proxy.add(Rule::new(Action::ReplaceReply(b"+mine\r\n".to_vec())).named("ECHO"));
    client.send_all(&["HELLO 3", "ECHO x", "SUBSCRIBE a b", "SUBSCRIBE", "GET none", "SET key value"]).await;

    let mut replies = String::new();
    client.stream.read_to_string(&mut replies).await.unwrap();

    let (hello, others) = replies.split_once("+mine\r\n").unwrap();
    assert!(hello.starts_with('%') && hello.contains("proto"), "{replies}");
    let confirmed = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    let others = others.strip_prefix(confirmed).unwrap();
    assert!(others.starts_with("-ERR wrong number") && others.ends_with("\r\n_\r\n"), "{replies}");
    assert_eq!(server.get("key").as_deref(), Some("value"));
}

#[tokio::test]
async fn a_message_that_comes_before_a_reply_is_not_taken_for_it() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    proxy.add(Rule::new(Action::CutAfterRequest).named("BLPOP"));
    client.send_all(&["HELLO 3", "SUBSCRIBE a", "ECHO ready"]).await;
    let mut replies = Vec::new();
    while !replies.ends_with(b"$5\r\nready\r\n") {
        client.stream.read_buf(&mut replies).await.unwrap();
    }
    client.send("BLPOP list 0").await;
    while server.info("clients")["blocked_clients"] != "1" {
        tokio::task::yield_now().await;
    }

    assert_eq!(server.command(&["PUBLISH", "a", "x"]), Reply::Int(1));
    client.expect(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n").await;
    server.command(&["RPUSH", "list", "1"]);
    client.expect_closed().await;
    assert!(!server.exists("list"), "the lost reply had taken the element");
}

#[tokio::test]
async fn a_stalled_proxy_is_a_black_hole_until_it_resumes() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    client.ask("SET a 1", "+OK\r\n").await;

    proxy.stall();
    client.send_all(&["SET a 2", "SET a 3"]).await;
    proxy.wait_for_commands(2).await;
    let mut late = Client::connect(proxy.addr()).await;
    late.send("GET a").await;
    proxy.wait_for(|command| command.connection == 1).await;
    client.expect_silence().await;
    late.expect_silence().await;
    assert_eq!(server.get("a").as_deref(), Some("1"));
    assert_eq!(proxy.commands(), 3, "of each connection, one command is taken up");
    assert_eq!(proxy.connections_open(), 2);

    proxy.resume();
    client.expect("+OK\r\n+OK\r\n").await;
    assert_eq!(server.get("a").as_deref(), Some("3"));
    late.expect("$1\r\n").await;
}

#[tokio::test]
async fn what_was_sent_before_the_client_left_is_delivered_after_a_stall() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    proxy.stall();
    client.send_all(&["SET a 1", "SET b 1"]).await;
    proxy.wait_for_commands(1).await;
    drop(client);
    proxy.resume();
    proxy.wait_for_connections(0).await;
    assert_eq!(server.keys("*"), ["a", "b"]);
}

#[tokio::test]
async fn nothing_is_piled_up_while_the_other_side_does_not_read() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    proxy.stall();
    let megabytes = encoded(&format!("SET key {}", "x".repeat(64 * 1024))).repeat(1024);
    let written = tokio::time::timeout(Duration::from_millis(300), client.stream.write_all(&megabytes)).await;
    assert!(written.is_err(), "64 MiB went into a proxy that passes nothing on");
    assert_eq!(proxy.commands(), 1);
}

#[tokio::test]
async fn cut_all_closes_what_is_open_and_later_connections_work() {
    let (server, proxy) = server_and_proxy().await;
    let mut first = Client::connect(proxy.addr()).await;
    let mut second = Client::connect(proxy.addr()).await;
    first.ask("PING", "+PONG\r\n").await;
    second.ask("PING", "+PONG\r\n").await;
    assert_eq!((proxy.connections_open(), proxy.connections_opened()), (2, 2));
    proxy.stall();
    proxy.cut_all().await;
    proxy.resume();
    first.expect_closed().await;
    second.expect_closed().await;
    assert_eq!(proxy.connections_open(), 0);

    Client::connect(proxy.addr()).await.ask("SET a 1", "+OK\r\n").await;
    assert_eq!(proxy.connections_opened(), 3);
    assert!(server.exists("a"));
}

#[tokio::test]
async fn refused_connections_fail_at_once_and_existing_ones_go_on() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    client.ask("PING", "+PONG\r\n").await;
    for _ in 0..3 {
        proxy.refuse(true).await;
        proxy.refuse(true).await;
        let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        client.ask("PING", "+PONG\r\n").await;

        proxy.refuse(false).await;
        proxy.refuse(false).await;
        Client::connect(proxy.addr()).await.ask("PING", "+PONG\r\n").await;
    }
}

#[tokio::test]
async fn later_connections_go_to_the_new_upstream() {
    let (old, proxy) = server_and_proxy().await;
    let new = RedisServer::start();
    let mut client = Client::connect(proxy.addr()).await;
    client.ask("SET a old", "+OK\r\n").await;
    proxy.set_upstream(new.addr());
    client.ask("SET b old", "+OK\r\n").await;
    Client::connect(proxy.addr()).await.ask("SET a new", "+OK\r\n").await;
    assert_eq!(old.keys("*"), ["a", "b"]);
    assert_eq!(new.get("a").as_deref(), Some("new"));
}

#[tokio::test]
async fn a_dead_server_closes_its_connections() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    client.ask("PING", "+PONG\r\n").await;
    server.kill();
    client.expect_closed().await;
    Client::connect(proxy.addr()).await.expect_closed().await;
    server.restart();
    Client::connect(proxy.addr()).await.ask("PING", "+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // this test blocks its thread
async fn a_replica_behind_the_proxy_can_be_partitioned() {
    let (primary, proxy) = server_and_proxy().await;
    let replicaof = format!("127.0.0.1 {}", proxy.addr().port());
    let replica = RedisServer::builder().arg("replicaof", &replicaof).start();
    replica.wait_for_primary();
    assert_eq!(proxy.commands_named("PSYNC"), 1);
    primary.set("a", "1");
    assert_eq!(primary.command(&["WAIT", "1", "5000"]), Reply::Int(1));
    assert_eq!(replica.get("a").as_deref(), Some("1"));

    proxy.stall();
    primary.set("a", "2");
    assert_eq!(primary.command(&["WAIT", "1", "50"]), Reply::Int(0));
    assert_eq!(replica.get("a").as_deref(), Some("1"));

    proxy.resume();
    assert_eq!(primary.command(&["WAIT", "1", "5000"]), Reply::Int(1));
    assert_eq!(replica.get("a").as_deref(), Some("2"));
}

#[tokio::test]
async fn everything_ends_with_the_proxy() {
    let (server, proxy) = server_and_proxy().await;
    let addr = proxy.addr();
    let mut idle = Client::connect(addr).await;
    let mut held = Client::connect(addr).await;
    idle.ask("PING", "+PONG\r\n").await;
    proxy.add(Rule::new(Action::HoldReply));
    held.send("SET a 1").await;
    proxy.wait_until_held().await;

    drop(proxy);

    idle.expect_closed().await;
    held.expect_closed().await;
    assert!(TcpStream::connect(addr).await.is_err());
    assert!(server.exists("a"));
}

#[tokio::test]
async fn bytes_that_are_not_the_protocol_are_reported() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = Client::connect(proxy.addr()).await;
    client.stream.write_all(b"*1\r\n:1\r\n").await.unwrap();
    client.expect_closed().await;
    assert_eq!(proxy.protocol_errors(), ["connection 0: an argument is not a bulk string"]);
}
