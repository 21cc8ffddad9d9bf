//! Bounds: written by hand, each the best case of one idea, without any safety. Nobody renews, nothing is lost gracefully, a
//! lost message hangs its waiter, and a dropped future leaves its lock behind. They show what there is to reach.

mod local;
mod pubsub;
mod queue;

pub(crate) use self::local::LocalQueue;
pub(crate) use self::pubsub::WakeUp;
pub(crate) use self::queue::Queue;
