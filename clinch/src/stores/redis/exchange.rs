//! One request and its answer: by itself or together with others, within its limit, and what its failure says of the connection.

use std::sync::Arc;

use redis::{RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::error::{broke, refused};
use super::lane::{Commands, Went};
use super::link::Link;
use super::request::Request;
use crate::store::{ErrorKind, StoreError};
use crate::stores::in_flight::{Place, Purpose};
use crate::stores::quorum::Probation;

impl Link {
    /// Sends a request, over this connection where it matters, and by this time where there is one; `sending` is told over which, before
    /// the first byte goes out.
    pub(super) async fn exchange(
        &self,
        purpose: Purpose,
        request: &mut Request<'_>,
        over: Option<Arc<Connection>>,
        mut by: Option<Instant>,
        sending: impl FnOnce(&Arc<Connection>),
    ) -> Result<Value, StoreError> {
        let alone = over.is_none() && request.needs_own_connection();
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
        let by_itself = connection.lane.by_itself(purpose);
        if by_itself.is_none()
            && let Some(first) = request.first()
        {
            sending(&connection);
            return self.together(&connection, purpose, first, request, by).await;
        }
        let place = if by_itself.is_some() { None } else { Some(Box::pin(self.place(purpose, by)).await?) };
        sending(&connection);
        let answers = connection.lane.answers();
        let answer = timeout_at(self.deadline(by), request.send(connection.redis.clone())).await;
        drop((by_itself, place));
        match answer {
            Ok(answer) => self.came_back(&connection, alone, answer),
            Err(_) => Err(self.late(&connection, connection.lane.answers() == answers)),
        }
    }

    /// The time by which a call is to be answered that goes out now.
    fn deadline(&self, by: Option<Instant>) -> Instant {
        by.unwrap_or_else(|| Instant::now() + self.calls.limit)
    }

    /// A place, waited for.
    async fn place(&self, purpose: Purpose, by: Option<Instant>) -> Result<Place, StoreError> {
        let place = timeout_at(self.deadline(by), self.calls.in_flight.place(purpose)).await;
        place.map_err(|_| self.calls.in_flight.overloaded(self.calls.limit))
    }

    /// Sends it with the calls of others. `first` is what it sends first.
    async fn together(
        &self,
        connection: &Arc<Connection>,
        purpose: Purpose,
        first: Commands,
        request: &Request<'_>,
        by: Option<Instant>,
    ) -> Result<Value, StoreError> {
        let went = connection.lane.together(purpose, first);
        let went = match by {
            None => went.await,
            Some(by) => {
                let answers = connection.lane.answers();
                let went = Box::pin(timeout_at(by, went)).await;
                went.unwrap_or_else(|_| Went::Late { silent: connection.lane.answers() == answers })
            }
        };
        let (first, deadline) = match went {
            Went::Out(answer, deadline) => (answer, by.unwrap_or(deadline)),
            Went::Late { silent } => return Err(self.late(connection, silent)),
            Went::Nowhere => return Err(self.calls.in_flight.overloaded(self.calls.limit)),
        };
        match request.answer(first) {
            Some(answer) => self.came_back(connection, false, answer),
            None => Box::pin(self.more(connection, purpose, request, deadline)).await,
        }
    }

    /// Sends what is to be sent after the first answer.
    async fn more(
        &self,
        connection: &Arc<Connection>,
        purpose: Purpose,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        connection.lane.answered();
        let place = self.place(purpose, Some(deadline)).await?;
        let answers = connection.lane.answers();
        let answer = timeout_at(deadline, request.more(connection.redis.clone())).await;
        drop(place);
        match answer {
            Ok(answer) => self.came_back(connection, false, answer),
            Err(_) => Err(self.late(connection, connection.lane.answers() == answers)),
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
                connection.lane.answered();
                if alone {
                    self.keep(connection.clone());
                }
                Ok(value)
            }
            Err(error) if is_refusal(&error) => {
                connection.lane.answered();
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

/// Whether the server answered, as opposed to the connection failing.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}
