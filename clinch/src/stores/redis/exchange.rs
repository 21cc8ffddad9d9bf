//! One request and its answer, within its limit, and what its failure says of the connection.

use std::sync::Arc;

use redis::{RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::error::{broke, refused};
use super::link::Link;
use super::request::{Next, Request, Sequel, is_refusal};
use super::wire::{Packed, Went};
use crate::store::{ErrorKind, StoreError};
use crate::stores::in_flight::Purpose;
use crate::stores::quorum::Probation;

impl Link {
    /// Sends a request, over this connection where it matters, and by this time where there is one; `sending` is told over which, before
    /// the first byte goes out.
    ///
    /// Not an `async fn`, which has room for its arguments twice: what is larger than a kilobyte is dear to allocate.
    pub(super) fn exchange<'a>(
        &'a self,
        purpose: Purpose,
        request: Request<'a>,
        over: Option<Arc<Connection>>,
        mut by: Option<Instant>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> impl Future<Output = Result<Value, StoreError>> {
        let alone = over.is_none() && request.needs_own_connection();
        let (first, mut sequel) = request.first();
        async move {
            let connection = match over.or_else(|| self.ready().filter(|_| !alone)) {
                Some(connection) => connection,
                None => {
                    // The limit is for all of it.
                    let deadline = *by.get_or_insert_with(|| Instant::now() + self.calls.limit);
                    // Larger, and not part of everybody's future.
                    Box::pin(self.connection_by(deadline, alone)).await?
                }
            };
            let probation = connection.probation.as_ref().filter(|_| purpose == Purpose::Grant);
            if let Some(refusal) = probation.and_then(Probation::refusal) {
                return Err(refusal);
            }
            sending(&connection);
            let (answer, deadline) = self.send(&connection, purpose, first, by).await?;
            let answer = match sequel.next(answer) {
                Next::Answer(answer) => answer,
                Next::More(more) => {
                    Box::pin(self.send_more(&connection, purpose, more, sequel, deadline)).await?
                }
            };
            self.came_back(&connection, alone, answer)
        }
    }

    /// Sends what there is, and gives its answer, and by when that was due.
    fn send<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        purpose: Purpose,
        packed: Packed,
        by: Option<Instant>,
    ) -> impl Future<Output = Result<(RedisResult<Value>, Instant), StoreError>> {
        let answers = connection.wire.answers();
        let went = connection.wire.call(purpose, packed);
        async move {
            let went = match by {
                None => went.await,
                Some(by) => {
                    let went = Box::pin(timeout_at(by, went)).await;
                    went.unwrap_or_else(|_| Went::Late { silent: connection.wire.answers() == answers })
                }
            };
            match went {
                Went::Out(answer, deadline) => Ok((answer, by.unwrap_or(deadline))),
                Went::Late { silent } => Err(self.late(connection, silent)),
                Went::Nowhere => Err(self.calls.in_flight.overloaded(self.calls.limit)),
            }
        }
    }

    /// Sends what is to be sent after the first answer, within the same limit.
    async fn send_more(
        &self,
        connection: &Arc<Connection>,
        purpose: Purpose,
        mut more: Packed,
        mut sequel: Sequel<'_>,
        deadline: Instant,
    ) -> Result<RedisResult<Value>, StoreError> {
        loop {
            let (answer, _) = self.send(connection, purpose, more, Some(deadline)).await?;
            more = match sequel.next(answer) {
                Next::Answer(answer) => return Ok(answer),
                Next::More(more) => more,
            };
        }
    }

    /// No answer came in time. `silent`: nothing came at all since it was sent.
    fn late(&self, connection: &Arc<Connection>, silent: bool) -> StoreError {
        if silent {
            // Nothing came back for the whole limit: later calls go over a new connection. This one stays open
            // for what must follow in its order.
            self.drop_connection(connection);
        }
        let message = format!("Redis at {} did not answer within {:?}", self.shown, self.calls.limit);
        StoreError::unknown(ErrorKind::Timeout, message)
    }

    /// An answer came.
    fn came_back(
        &self,
        connection: &Arc<Connection>,
        alone: bool,
        answer: RedisResult<Value>,
    ) -> Result<Value, StoreError> {
        match answer {
            Ok(value) => {
                if alone {
                    self.keep(connection.clone());
                }
                Ok(value)
            }
            Err(error) if is_refusal(&error) => {
                let error = refused(error);
                if error.kind() == ErrorKind::ReadOnly {
                    // What was the primary is one no longer: the name may lead to the new one.
                    self.drop_connection(connection);
                }
                Err(error)
            }
            Err(error) => {
                connection.breaks();
                self.drop_connection(connection);
                Err(broke(&self.shown, error))
            }
        }
    }
}
