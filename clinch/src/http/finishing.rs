//! A handler that runs on when its client goes away, if it should.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::Extensions;
use tokio::runtime::Handle;

use super::web::Web;
use crate::manager::{LockManager, Opened, Scope, ToBeOpened};
use crate::submit::{Came, Comes, Disconnect, Guards, request};

/// Whether something has begun in a request that is to be finished.
///
/// Guards stand inside of each other, and each may say something else. What an inner one is to finish, all around it stand
/// by: a lock that is given back to others while the handler inside of it runs on would be none.
#[derive(Debug, Clone)]
pub(super) struct Begun(Arc<Flag>);

#[derive(Debug)]
struct Flag {
    begun: AtomicBool,
    /// Nobody waits for the answer any more.
    left: AtomicBool,
    around: Option<Begun>,
    /// To which keys the request came, at all its guards; unless there is one around, which knows that.
    came: Came,
}

impl Begun {
    /// Of one more guard that this request comes to.
    pub(super) fn in_request(extensions: &mut Extensions) -> Self {
        let (begun, left) = (AtomicBool::new(false), AtomicBool::new(false));
        let around = extensions.get::<Self>().cloned();
        let begun = Self(Arc::new(Flag { begun, left, around, came: Came::default() }));
        extensions.insert(begun.clone());
        begun
    }

    /// From now on the client may go away in this way.
    pub(super) fn on(&self, disconnect: Disconnect) {
        let mut next = (disconnect == Disconnect::Finish).then_some(self);
        while let Some(Self(flag)) = next {
            flag.begun.store(true, Ordering::Release);
            next = flag.around.as_ref();
        }
    }

    /// The request, as far as it comes to guards.
    pub(super) fn request(&self) -> Arc<dyn Comes> {
        self.0.clone()
    }

    fn get(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Whether the answer has nobody to go to: the client is gone, or somebody around has given up.
    pub(super) fn is_left(&self) -> bool {
        let mut next = Some(self);
        while let Some(Self(flag)) = next {
            if flag.left.load(Ordering::Acquire) {
                return true;
            }
            next = flag.around.as_ref();
        }
        false
    }
}

impl Comes for Flag {
    fn came(&self) -> &Came {
        let mut flag = self;
        while let Some(Begun(around)) = &flag.around {
            flag = around;
        }
        &flag.came
    }
}

/// What a guard's service returns. Dropped before its end, it goes on in a task of its own, if its policy, or that of a guard
/// inside of it, is to finish what has begun.
pub struct ResponseFuture<T: Send + 'static> {
    /// `None` while it is polled, so that one that panics does not go on.
    running: Option<Running<T>>,
    begun: Begun,
    /// The runtime that it goes on in; there may be none around when it is dropped. Not known before something has to be
    /// waited for, because all requests share it.
    runtime: Option<Handle>,
}

impl<T: Send + 'static> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> ResponseFuture<T> {
    /// In the request's scope. A request has one, which the outermost layer opens.
    ///
    /// The future comes in its box, so that it need not be moved.
    pub(super) fn in_scope(begun: Begun, locks: &LockManager, future: Boxed<T>) -> Self {
        let scope = match locks.current_scope() {
            Some(_) => InScope::Around,
            None => InScope::OfItsOwn(Scope::to_be_opened(locks)),
        };
        let running = Running { scope, future: Some(future) };
        Self { running: Some(running), begun, runtime: None }
    }
}

impl<T: Send + 'static> Future for ResponseFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut running) = self.running.take() else { return Poll::Pending };
        let polled = Pin::new(&mut running).poll(context);
        if polled.is_pending() {
            self.running = Some(running);
            if self.runtime.is_none() {
                self.runtime = Handle::try_current().ok();
            }
        }
        polled
    }
}

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes a future in its box. `Box::pin` moves all of its kilobytes there after it is made.
pub(super) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// What a guard's service does, in its scope. It is polled where it is.
struct Running<T> {
    scope: InScope,
    /// `None` when it is done, or dropped.
    future: Option<Boxed<T>>,
}

enum InScope {
    /// In whichever scope it is polled.
    Around,
    /// In one of its own, which is opened when it is first polled.
    OfItsOwn(ToBeOpened),
    Opened(Opened),
}

impl<T> Future for Running<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Self { scope, future } = &mut *self;
        let Some(future) = future else { return Poll::Pending };
        if let InScope::OfItsOwn(own) = scope {
            *scope = InScope::Opened(own.open());
        }
        let polled = match scope {
            InScope::Opened(scope) => scope.poll(future.as_mut(), context),
            InScope::Around | InScope::OfItsOwn(_) => future.as_mut().poll(context),
        };
        if polled.is_ready() {
            // Nothing is left in it that would have to be dropped in its scope.
            self.future = None;
        }
        polled
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        // What is inside of it may go on, and then does so in its scope.
        if let (InScope::Opened(scope), Some(future)) = (&self.scope, self.future.take()) {
            scope.drop(future);
        }
    }
}

impl<T: Send + 'static> Drop for ResponseFuture<T> {
    fn drop(&mut self) {
        if let (Some(running), Some(runtime)) = (self.running.take(), &self.runtime)
            && self.begun.get()
        {
            self.begun.0.left.store(true, Ordering::Release);
            // If a layer in between has given up, this is the request's context, which the new task would not have.
            let (guards, web, request) = (Guards::current_here(), Web::current(), request::current());
            let running = Scope::going_on().run(running);
            // Nobody waits for what comes of it.
            runtime.spawn(async move {
                let Some(guards) = guards else { return drop(running.await) };
                match (web, request) {
                    (Some(web), Some(request)) => {
                        drop(guards.enter(web.serve(request::serve(request, running))).await);
                    }
                    _ => drop(guards.enter(running).await),
                }
            });
        }
    }
}
