//! Each fault of `FaultProxy`, as client and server see it.

mod common;

use std::io;
use std::time::{Duration, Instant};

use clinch_testkit::proxy::{Action, FaultProxy, Rule};
use clinch_testkit::server::RedisServer;
use common::Client;
use tokio::io::AsyncReadExt;

async fn start() -> (RedisServer, FaultProxy, Client) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let client = Client::connect(proxy.addr()).await;
    (server, proxy, client)
}

#[tokio::test]
async fn drop_request_then_cut_loses_the_request_and_keeps_earlier_replies() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::DropRequestThenCut).named("SET"));
    client.send_all(&["PING", "GET a", "SET a 1", "PING"]).await;
    client.expect("+PONG\r\n$-1\r\n").await;
    client.expect_closed().await;
    assert!(!server.exists("a"));
    assert_eq!(proxy.rules_left(), 0);
    proxy.wait_for_connections(0).await;
}

#[tokio::test]
async fn drop_request_then_stall_leaves_a_half_open_connection() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::DropRequestThenStall).named("SET"));
    proxy.add(Rule::new(Action::CutBeforeRequest).named("DEL"));
    client.send_all(&["PING", "SET a 1", "DEL b", "SET c 1"]).await;
    client.expect("+PONG\r\n").await;
    proxy.wait_for_commands(4).await;
    client.expect_silence().await;
    assert_eq!(server.keys("*"), [""; 0]);
    assert_eq!(proxy.rules_left(), 1, "no rule acts on what is thrown away");

    let mut other = Client::connect(proxy.addr()).await;
    other.ask("SET a 2", "+OK\r\n").await;
    drop(client);
    proxy.wait_for_connections(1).await;
}

#[tokio::test]
async fn cut_before_request() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::CutBeforeRequest).nth(2));
    client.ask("SET a 1", "+OK\r\n").await;
    client.send("SET a 2").await;
    client.expect_closed().await;
    assert_eq!(server.get("a").as_deref(), Some("1"));
}

#[tokio::test]
async fn cut_after_request_loses_the_reply_of_a_command_that_was_executed() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::CutAfterRequest).named("SET").nth(2));
    client.send_all(&["SET a 1", "SET a 2"]).await;
    client.expect("+OK\r\n").await;
    client.expect_closed().await;
    assert_eq!(server.get("a").as_deref(), Some("2"));
    assert_eq!(proxy.rules_left(), 0);
}

#[tokio::test]
async fn cut_mid_reply_is_a_reset_behind_the_first_bytes() {
    let (server, proxy, mut client) = start().await;
    server.set("a", "value");
    proxy.add(Rule::new(Action::CutMidReply(6)).named("GET"));
    client.send("GET a").await;
    client.expect("$5\r\nva").await;
    let error = client.stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    proxy.add(Rule::new(Action::CutMidReply(1000)).named("GET"));
    let mut client = Client::connect(proxy.addr()).await;
    client.send("GET a").await;
    client.expect("$5\r\nvalue\r").await;
    let error = client.stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn delays_take_their_time() {
    const DELAY: Duration = Duration::from_millis(1_500);
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::DelayRequest(DELAY)));
    let sent = Instant::now();
    client.send_all(&["SET a 1", "SET b 1"]).await;
    proxy.wait_for_commands(1).await;
    assert!(!server.exists("a"));
    client.expect("+OK\r\n+OK\r\n").await;
    assert!(sent.elapsed() >= DELAY);

    proxy.add(Rule::new(Action::DelayReply(DELAY)).named("SET"));
    let sent = Instant::now();
    client.ask("SET a 2", "+OK\r\n").await;
    assert!(sent.elapsed() >= DELAY);
}

#[tokio::test]
async fn a_held_request_reaches_the_server_when_it_is_released() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::HoldRequest).named("SET").times(2));
    for value in ["1", "2"] {
        client.send(&format!("SET a {value}")).await;
        proxy.wait_until_held().await;
        assert_ne!(server.get("a").as_deref(), Some(value));
        assert_eq!(proxy.held(), 1);
        proxy.release_held();
        assert_eq!(proxy.held(), 0);
        client.expect("+OK\r\n").await;
        assert_eq!(server.get("a").as_deref(), Some(value));
    }
}

#[tokio::test]
async fn a_held_request_reaches_the_server_even_after_its_client_has_gone() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::HoldRequest).named("SET"));
    client.send_all(&["PING", "SET a 1"]).await;
    proxy.wait_until_held().await;
    drop(client); // with an unread reply: a reset
    proxy.release_held();
    proxy.wait_for_connections(0).await;
    assert_eq!(server.get("a").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_held_reply_is_that_of_an_executed_command() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::HoldReply).named("SET"));
    client.send_all(&["PING", "SET a 1", "GET a"]).await;
    proxy.wait_until_held().await;
    assert_eq!(server.get("a").as_deref(), Some("1"));
    client.expect("+PONG\r\n").await;
    client.expect_silence().await;
    proxy.release_held();
    client.expect("+OK\r\n$1\r\n1\r\n").await;
}

#[tokio::test]
async fn what_is_held_on_a_connection_that_is_cut_is_no_longer_counted() {
    let (_server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::HoldReply));
    client.send("SET a 1").await;
    proxy.wait_until_held().await;
    proxy.cut_all().await;
    assert_eq!(proxy.held(), 0);
    client.expect_closed().await;
}

#[tokio::test]
async fn a_duplicate_is_executed_twice_and_answered_once() {
    let (server, proxy, mut client) = start().await;
    proxy.add(Rule::new(Action::Duplicate).named("INCR"));
    client.send_all(&["INCR a", "GET a"]).await;
    client.expect(":1\r\n$1\r\n2\r\n").await;
    assert_eq!(server.command_calls()["incr"], 2);
    assert_eq!(proxy.commands_named("INCR"), 1, "the client sent it once");
}

#[tokio::test]
async fn a_replaced_reply_comes_in_its_turn_and_the_server_knows_nothing_of_it() {
    let (server, proxy, mut client) = start().await;
    let readonly = "-READONLY You can't write against a read only replica.\r\n";
    proxy.add(Rule::new(Action::ReplaceReply(readonly.into())).named("set").times(2));
    client.send_all(&["PING", "SET a 1", "GET a", "SET a 1", "SET b 1"]).await;
    client.expect(&format!("+PONG\r\n{readonly}$-1\r\n{readonly}+OK\r\n")).await;
    assert_eq!(server.keys("*"), ["b"]);
}

#[tokio::test]
async fn rules_choose_by_connection_place_and_arguments() {
    let (server, proxy, mut first) = start().await;
    first.ask("PING", "+PONG\r\n").await;
    let mut second = Client::connect(proxy.addr()).await;
    let no = || Action::ReplaceReply(b"-no\r\n".to_vec());
    proxy.add(Rule::new(no()).on_connection(1).lease_only());
    first.ask("SET a 1", "+OK\r\n").await;
    second.ask("CLIENT GETNAME", "$-1\r\n").await;
    second.ask("SET a 1", "-no\r\n").await;
    second.ask("SET a 1", "+OK\r\n").await;

    proxy.add(Rule::new(no()).matching(|command| command.arg(0).as_deref() == Some("b")).nth(2).always());
    for reply in ["+OK\r\n", "-no\r\n", "-no\r\n"] {
        first.ask("SET b 1", reply).await;
        second.ask("SET c 1", "+OK\r\n").await;
    }
    assert_eq!(proxy.rules_left(), 1);
    proxy.clear_rules();
    first.ask("SET b 2", "+OK\r\n").await;
    assert_eq!(server.get("b").as_deref(), Some("2"));
}

#[tokio::test]
async fn events_are_not_missed_when_they_come_first() {
    let (_server, proxy, mut client) = start().await;
    client.ask("SET a 1", "+OK\r\n").await;
    client.ask("GET a", "$1\r\n1\r\n").await;
    let set = proxy.wait_for(|command| command.name == "SET").await;
    assert_eq!((set.connection, set.ordinal), (0, 1));

    let waiting = proxy.wait_for(|command| command.arg(0).as_deref() == Some("b"));
    let sending = client.ask("GET b", "$-1\r\n");
    let (found, ()) = tokio::join!(waiting, sending);
    assert_eq!(found.to_string(), "#3 on 0: GET b");
    proxy.wait_for_commands(3).await;
}
