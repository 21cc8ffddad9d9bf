//! What the tests have in common: an error of their own, and a gate that holds a function open.

use std::future::Future;

use clinch::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The error of a service: its own, and those of the guards.
#[derive(Debug)]
pub(crate) enum Failed {
    Own(&'static str),
    Guard(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Guard(error)
    }
}

impl Failed {
    /// The guard's error.
    #[track_caller]
    pub(crate) fn guard(self) -> Error {
        match self {
            Self::Guard(error) => error,
            Self::Own(own) => panic!("{own}"),
        }
    }
}

pub(crate) type Outcome = Result<u64, Failed>;

/// What a function passes through: it says that it is inside, and goes on when it is told what to return.
pub(crate) struct Gate {
    inside: oneshot::Sender<()>,
    end: oneshot::Receiver<Outcome>,
}

impl Gate {
    /// Panics if nobody is left to tell it.
    pub(crate) async fn pass(self) -> Outcome {
        // An open one has nobody who waits for it.
        let _: Result<(), ()> = self.inside.send(());
        self.end.await.expect("nobody is left to say how this ends")
    }

    /// One that is open.
    pub(crate) fn open() -> Self {
        let (end, ended) = oneshot::channel();
        end.send(Ok(0)).unwrap();
        Self { inside: oneshot::channel().0, end: ended }
    }
}

/// A call that is inside, in a task of its own.
pub(crate) struct Inside {
    end: oneshot::Sender<Outcome>,
    task: JoinHandle<Outcome>,
}

impl Inside {
    /// Waits until it is inside.
    pub(crate) async fn enter<F>(call: impl FnOnce(Gate) -> F) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let ((inside, entered), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let task = tokio::spawn(call(Gate { inside, end: ended }));
        entered.await.expect("the call was not let in");
        Self { end, task }
    }

    /// Lets it end, and returns what came out of it.
    pub(crate) async fn end(self, with: Outcome) -> Outcome {
        self.end.send(with).unwrap();
        self.task.await.unwrap()
    }

    /// Lets it panic.
    pub(crate) async fn panic(self) {
        drop(self.end);
        assert!(self.task.await.unwrap_err().is_panic());
    }

    /// Drops it.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}
