//! The order of answers, the bounds and the limit, over a stream in this process and on a clock that stands still.

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

fn wire(places: usize) -> (Wire, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    (Wire::over(Box::new(ours), Arc::new(InFlight::new(places)), LIMIT), theirs)
}

fn say(word: &str) -> Packed {
    Packed::command(1, word.len()).word(word)
}

/// What has come to the server, as words.
async fn heard(server: &mut DuplexStream) -> Vec<String> {
    let mut bytes = [0; 4096];
    let count = server.read(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
    text.split("\r\n")
        .filter(|word| !word.is_empty() && !word.starts_with(['*', '$']))
        .map(str::to_owned)
        .collect()
}

async fn answer(server: &mut DuplexStream, bytes: &str) {
    server.write_all(bytes.as_bytes()).await.unwrap();
}

fn number(went: Went) -> i64 {
    match went {
        Went::Out(Ok(Value::Int(number)), _) => number,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_together_goes_out_together_and_is_answered_in_order() {
    let (wire, mut server) = wire(100);
    let calls = ["a", "b", "c"].map(|word| wire.call(Purpose::Other, say(word)));
    let serve = async {
        assert_eq!(heard(&mut server).await, ["a", "b", "c"]);
        // Answers come as they come.
        for part in [":", "1\r\n:2", "\r\n:3\r", "\n"] {
            answer(&mut server, part).await;
            tokio::task::yield_now().await;
        }
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), serve);
    assert_eq!(answers.into_iter().map(number).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn several_commands_of_one_call_have_one_answer() {
    let (wire, mut server) = wire(100);
    let commands = [redis::cmd("a"), redis::cmd("b")];
    let call = wire.call(Purpose::Other, Packed::several(commands.iter().map(std::borrow::Cow::Borrowed)));
    let serve = async {
        assert_eq!(heard(&mut server).await, ["a", "b"]);
        answer(&mut server, ":1\r\n-ERR no\r\n").await;
    };
    let (went, ()) = tokio::join!(call, serve);
    let Went::Out(Ok(Value::Array(answers)), _) = went else { panic!("{went:?}") };
    assert!(matches!(answers[..], [Value::Int(1), Value::ServerError(_)]), "{answers:?}");
}

/// Proves: T6
#[tokio::test(start_paused = true)]
async fn there_is_a_bound_and_upkeep_goes_first() {
    let (wire, mut server) = wire(2);
    // One place of the two is for upkeep.
    let mut calls: Vec<_> = ["a", "b", "c"].map(|word| Box::pin(wire.call(Purpose::Grant, say(word)))).into();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    assert_eq!(heard(&mut server).await, ["a"]);
    let mut upkeep = ["d", "e"].map(|word| Box::pin(wire.call(Purpose::Upkeep, say(word))));
    for call in &mut upkeep {
        assert!(call.now_or_never().is_none());
    }
    assert_eq!(heard(&mut server).await, ["d"]);
    // Nobody wants this any more, and it never goes out.
    drop(calls.remove(1));
    answer(&mut server, ":1\r\n:2\r\n").await;
    assert_eq!(heard(&mut server).await, ["e", "c"]);
    answer(&mut server, ":3\r\n:4\r\n").await;
    let [d, e] = upkeep;
    assert_eq!((number(d.await), number(e.await)), (2, 3));
    assert_eq!((number(calls.remove(0).await), number(calls.remove(0).await)), (1, 4));
}

/// Fault: 33
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_ends_and_keeps_its_turn() {
    let (wire, mut server) = wire(2);
    let began = Instant::now();
    let (first, waits) =
        tokio::join!(wire.call(Purpose::Grant, say("a")), wire.call(Purpose::Grant, say("b")));
    assert!(matches!(first, Went::Late { silent: true }), "{first:?}");
    assert!(matches!(waits, Went::Nowhere), "{waits:?}");
    // The timer's own grain.
    assert!(began.elapsed() <= LIMIT + Duration::from_millis(2), "{:?}", began.elapsed());
    assert_eq!(heard(&mut server).await, ["a"]);
    // Its place is free again, and its answer is not the next one's.
    let serve = async {
        assert_eq!(heard(&mut server).await, ["c"]);
        answer(&mut server, ":1\r\n:3\r\n").await;
    };
    let (next, ()) = tokio::join!(wire.call(Purpose::Grant, say("c")), serve);
    assert_eq!(number(next), 3);
}

/// Fault: 34
#[tokio::test(start_paused = true)]
async fn one_that_is_late_is_told_whether_others_were_answered() {
    let (wire, mut server) = wire(100);
    let serve = async {
        heard(&mut server).await;
        answer(&mut server, ":1\r\n").await;
    };
    let (first, second, ()) =
        tokio::join!(wire.call(Purpose::Other, say("a")), wire.call(Purpose::Other, say("b")), serve);
    assert_eq!(number(first), 1);
    assert!(matches!(second, Went::Late { silent: false }), "{second:?}");
}

/// Fault: 34
#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_ends_all_calls() {
    for garbage in [None, Some("HTTP/1.1 400\r\n")] {
        let (wire, mut server) = wire(2);
        let end = async {
            heard(&mut server).await;
            match garbage {
                Some(garbage) => answer(&mut server, garbage).await,
                None => drop(server),
            }
        };
        let (sent, waits, ()) =
            tokio::join!(wire.call(Purpose::Grant, say("a")), wire.call(Purpose::Grant, say("b")), end);
        for went in [sent, waits, wire.call(Purpose::Grant, say("c")).await] {
            assert!(matches!(went, Went::Out(Err(_), _)), "{went:?}");
        }
    }
}

/// Places are those of all connections to a server: what another gives back is found.
///
/// Proves: T6
#[tokio::test(start_paused = true)]
async fn a_place_that_another_connection_gives_back_is_taken() {
    let in_flight = Arc::new(InFlight::new(2));
    let ((ours, _others), (mine, mut server)) = (duplex(1 << 16), duplex(1 << 16));
    let (other, wire) =
        (Wire::over(Box::new(ours), in_flight.clone(), LIMIT), Wire::over(Box::new(mine), in_flight, LIMIT));
    let mut there = Box::pin(other.call(Purpose::Grant, say("a")));
    assert!((&mut there).now_or_never().is_none());
    let mut here = Box::pin(wire.call(Purpose::Grant, say("b")));
    assert!((&mut here).now_or_never().is_none());
    drop(there);
    drop(other);
    assert_eq!(heard(&mut server).await, ["b"]);
    answer(&mut server, ":2\r\n").await;
    assert_eq!(number(here.await), 2);
}

/// What waits for a place keeps its order and its words, whatever comes behind it, goes before it or is given up among it.
#[tokio::test(start_paused = true)]
async fn what_waits_goes_out_in_order_and_whole() {
    let (wire, mut server) = wire(4);
    let call = |number: usize| Box::pin(wire.call(Purpose::Grant, say(&format!("w{number}"))));
    let mut calls: Vec<_> = (0..8).map(|number| Some(call(number))).collect();
    for call in calls.iter_mut().flatten() {
        assert!(call.now_or_never().is_none());
    }
    // One place of the four is for upkeep.
    assert_eq!(heard(&mut server).await, ["w0", "w1", "w2"]);
    calls[4] = None;
    // More come behind those that wait, some of whom go out meanwhile.
    for number in 8..12 {
        calls.push(Some(call(number)));
        assert!(calls[number].as_mut().unwrap().now_or_never().is_none());
        if number == 9 {
            answer(&mut server, ":0\r\n:1\r\n").await;
            assert_eq!(heard(&mut server).await, ["w3", "w5"]);
        }
    }
    answer(&mut server, ":2\r\n:3\r\n:5\r\n").await;
    assert_eq!(heard(&mut server).await, ["w6", "w7", "w8"]);
    answer(&mut server, ":6\r\n:7\r\n:8\r\n").await;
    assert_eq!(heard(&mut server).await, ["w9", "w10", "w11"]);
    answer(&mut server, ":9\r\n:10\r\n:11\r\n").await;
    for (asked, call) in calls.into_iter().enumerate() {
        if let Some(call) = call {
            assert_eq!(usize::try_from(number(call.await)).unwrap(), asked);
        }
    }
}

/// A stream that takes a few bytes at a time gets all of them, in order, also of those who come while it is full.
#[tokio::test(start_paused = true)]
async fn what_is_written_in_parts_arrives_whole() {
    let (ours, mut server) = duplex(7);
    let wire = Wire::over(Box::new(ours), Arc::new(InFlight::new(100)), LIMIT);
    let words: Vec<String> = (0..20).map(|number| format!("word {number}")).collect();
    let calls = words.iter().enumerate().map(async |(number, word)| {
        for _ in 0..number {
            tokio::task::yield_now().await;
        }
        wire.call(Purpose::Other, say(word)).await
    });
    let serve = async {
        let mut expected: Vec<u8> = Vec::new();
        words.iter().for_each(|word| expected.extend_from_slice(&say(word).bytes));
        let mut come = vec![0; expected.len()];
        server.read_exact(&mut come).await.unwrap();
        assert_eq!(come, expected);
        for number in 0..words.len() {
            answer(&mut server, &format!(":{number}\r\n")).await;
        }
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), serve);
    assert_eq!(answers.into_iter().map(number).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
}

/// Proves: T6
#[tokio::test(start_paused = true)]
async fn who_finds_no_room_comes_in_when_there_is_some() {
    let (wire, mut server) = wire(1);
    let mut calls: Vec<_> = (0..ROOM + 3).map(|_| Box::pin(wire.call(Purpose::Grant, say("a")))).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    assert_eq!(heard(&mut server).await, ["a"]);
    let serve = async {
        for _ in 0..ROOM + 2 {
            answer(&mut server, ":1\r\n").await;
            assert_eq!(heard(&mut server).await, ["a"]);
        }
        answer(&mut server, ":1\r\n").await;
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), serve);
    assert!(answers.into_iter().all(|went| number(went) == 1));
}

/// A place that another connection gives back is taken by one whose only call under way is late, and has none any more.
#[tokio::test(start_paused = true)]
async fn a_place_is_waited_for_also_behind_a_late_call() {
    let places = Arc::new(InFlight::new(1));
    let over = |places: &Arc<InFlight>| {
        let (ours, theirs) = duplex(1 << 16);
        (Wire::over(Box::new(ours), places.clone(), LIMIT), theirs)
    };
    let ((one, mut server), (other, mut others_server)) = (over(&places), over(&places));
    assert!(matches!(one.call(Purpose::Other, say("late")).await, Went::Late { .. }));
    assert_eq!(heard(&mut server).await, ["late"]);
    let mut in_the_way = Box::pin(other.call(Purpose::Other, say("in the way")));
    assert!((&mut in_the_way).now_or_never().is_none());
    assert_eq!(heard(&mut others_server).await, ["in the way"]);
    let waits = one.call(Purpose::Upkeep, say("waits"));
    let serve = async {
        tokio::task::yield_now().await;
        answer(&mut others_server, ":1\r\n").await;
        assert_eq!(number(in_the_way.await), 1);
        assert_eq!(heard(&mut server).await, ["waits"]);
        answer(&mut server, ":0\r\n:2\r\n").await;
    };
    let (went, ()) = tokio::join!(waits, serve);
    assert_eq!(number(went), 2);
}

/// Makes a call that is answered, after which the task of the connection has nothing to do.
async fn come_to_rest(wire: &Wire, server: &mut DuplexStream) {
    let serve = async {
        assert_eq!(heard(server).await, ["first"]);
        answer(server, ":0\r\n").await;
    };
    let (went, ()) = tokio::join!(wire.call(Purpose::Other, say("first")), serve);
    assert_eq!(number(went), 0);
    tokio::task::yield_now().await;
}

/// Who comes while nothing is under way sends himself: nobody else has run when it arrives. Who comes behind it does not.
#[tokio::test(start_paused = true)]
async fn a_lone_call_is_sent_by_its_caller() {
    let (wire, mut server) = wire(100);
    come_to_rest(&wire, &mut server).await;
    let [mut lone, mut behind] =
        ["lone", "behind"].map(|word| Box::pin(wire.call(Purpose::Other, say(word))));
    assert!((&mut lone).now_or_never().is_none());
    assert_eq!(heard(&mut server).now_or_never().expect("it is there"), ["lone"]);
    assert!((&mut behind).now_or_never().is_none());
    assert!(heard(&mut server).now_or_never().is_none());
    assert_eq!(heard(&mut server).await, ["behind"]);
    answer(&mut server, ":1\r\n:2\r\n").await;
    assert_eq!((number(lone.await), number(behind.await)), (1, 2));
}

/// Its limit is kept as everybody's, also where the task has had no timer since long ago.
///
/// Fault: 33
#[tokio::test(start_paused = true)]
async fn a_lone_call_that_is_not_answered_ends_within_its_limit() {
    for pause in [LIMIT / 10, 10 * LIMIT] {
        let (wire, mut server) = wire(100);
        come_to_rest(&wire, &mut server).await;
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let went = wire.call(Purpose::Other, say("lone")).await;
        assert!(matches!(went, Went::Late { silent: true }), "{went:?}");
        assert!(began.elapsed() <= LIMIT + Duration::from_millis(2), "{:?}", began.elapsed());
        assert_eq!(heard(&mut server).await, ["lone"]);
    }
}

/// What the stream does not take at once the task sends, and what has no place waits for one.
#[tokio::test(start_paused = true)]
async fn what_a_lone_caller_cannot_send_the_task_does() {
    let (ours, mut server) = duplex(16);
    let places = Arc::new(InFlight::new(1));
    let wire = Wire::over(Box::new(ours), places.clone(), LIMIT);
    come_to_rest(&wire, &mut server).await;
    let place = places.place(Purpose::Other).await;
    let long = "long".repeat(10);
    let mut call = Box::pin(wire.call(Purpose::Other, say(&long)));
    assert!((&mut call).now_or_never().is_none());
    assert!(heard(&mut server).now_or_never().is_none());
    drop(place);
    let serve = async {
        let mut come = vec![0; say(&long).bytes.len()];
        server.read_exact(&mut come).await.unwrap();
        assert_eq!(come, say(&long).bytes);
        answer(&mut server, ":7\r\n").await;
    };
    let (went, ()) = tokio::join!(call, serve);
    assert_eq!(number(went), 7);
}

/// With its runtime the connection ends, and whoever comes then is told.
#[test]
fn the_end_of_the_runtime_is_the_end_of_the_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (wire, mut server) = runtime.block_on(async {
        let (wire, mut server) = wire(100);
        come_to_rest(&wire, &mut server).await;
        (wire, server)
    });
    drop(runtime);
    let went = wire.call(Purpose::Other, say("late")).now_or_never();
    assert!(matches!(went, Some(Went::Out(Err(_), _))), "{went:?}");
    let read = server.read_u8().now_or_never().expect("nothing more comes");
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

type Hook = Arc<Mutex<Option<Box<dyn FnMut(usize) + Send>>>>;

/// A stream that tells how often it was read in one go: what is done then stands for another thread.
struct Hooked {
    stream: DuplexStream,
    reads: usize,
    hook: Hook,
}

impl AsyncRead for Hooked {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = pin!(&mut this.stream).poll_read(cx, space);
        this.reads = if polled.is_ready() { this.reads + 1 } else { 0 };
        if let Some(hook) = this.hook.lock().unwrap().as_mut() {
            hook(this.reads);
        }
        polled
    }
}

impl AsyncWrite for Hooked {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        pin!(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        pin!(&mut self.stream).poll_shutdown(cx)
    }
}

/// tokio gives a task a budget for each poll, here used up by reading; the limit of a call that comes then is kept all the same.
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_while_much_is_read_ends_within_its_limit() {
    const ANSWER: usize = 16 * 1024;
    for at in [1, 127, 128] {
        let (ours, mut server) = duplex(1 << 22);
        let (hook, places) = (Hook::default(), Arc::new(InFlight::new(1_000)));
        let stream = Hooked { stream: ours, reads: 0, hook: hook.clone() };
        let wire = Arc::new(Wire::over(Box::new(stream), places, LIMIT));
        let late = futures_util::future::join_all((0..200).map(|_| wire.call(Purpose::Other, say("late"))));
        assert!(late.await.iter().all(|went| matches!(went, Went::Late { .. })));

        let (came, caller) = (Arc::new(Mutex::new(None)), wire.clone());
        let coming = came.clone();
        *hook.lock().unwrap() = Some(Box::new(move |reads| {
            if reads == at {
                let caller = caller.clone();
                let mut call = async move { caller.call(Purpose::Other, say("new")).await }.boxed();
                assert!((&mut call).now_or_never().is_none());
                *coming.lock().unwrap() = Some(call);
            }
        }));
        let text = "x".repeat(ANSWER - "$16374\r\n\r\n".len());
        server.write_all(format!("${}\r\n{text}\r\n", text.len()).repeat(200).as_bytes()).await.unwrap();
        tokio::time::sleep(LIMIT / 100).await;
        let call = came.lock().unwrap().take().expect("it came while the answers were read");
        let went = tokio::time::timeout(100 * LIMIT, call).await;
        assert!(matches!(went, Ok(Went::Late { .. })), "after {at} reads: {went:?}");
    }
}
