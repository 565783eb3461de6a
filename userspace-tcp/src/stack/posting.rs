//! Segments queued one behind the other: what is the same for all of them is looked up and settled once.

use userspace_net::Instant;

use crate::connection::Connection;
use crate::effects::Env;
use crate::interface::{ConnId, Outgoing, SendCapacity, SendError, SendRefusal};

use super::Stack;

/// A connection that segments are queued for ([`Stack::post`]).
pub struct Posting<'a, B> {
    /// `None`: it is gone.
    connection: Option<&'a mut Connection<B>>,
    env: Env<'a, B>,
    send_capacity: SendCapacity,
    /// Bytes that windows let go behind what is queued.
    room: usize,
    /// Segments that the queue takes.
    places: usize,
    posted: bool,
}

impl<B> Stack<B> {
    /// Has `posts` queue segments of this connection. What it tells of itself meanwhile
    /// ([`Posting::send_capacity`]) is as if each of them were a [`Stack::send`] by itself, and so is the result.
    #[inline]
    pub fn post<R>(
        &mut self,
        conn: ConnId,
        now: Instant,
        posts: impl FnOnce(&mut Posting<'_, B>) -> R,
    ) -> R {
        let env = Env {
            now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        let mut posting = Posting::new(self.connections.get_mut(conn), env);
        let result = posts(&mut posting);
        if posting.end() {
            // What is to be sent already is settled when it is, and so is what is next anyway.
            if self.sending.is_none() && self.ready.first().is_none() {
                self.sending = Some(conn.index);
                self.turn = 0;
            } else if !self.ready_links.contains(conn.index) && self.sending != Some(conn.index) {
                self.settle(conn);
            }
        }
        result
    }

    /// Queues one segment; it is sent as exactly one.
    ///
    /// # Errors
    /// The buffer comes back with the reason.
    pub fn send(
        &mut self,
        conn: ConnId,
        now: Instant,
        segment: Outgoing<B>,
    ) -> Result<(), SendError<B>> {
        self.post(conn, now, |posting| posting.send(segment))
    }

    /// [`Stack::queued_segments`], [`Stack::mss`] and, but for the segment that may wait,
    /// [`Stack::send_room`] by one look.
    pub fn send_capacity(&self, conn: ConnId) -> SendCapacity {
        let connection = self.connections.get(conn);
        connection.map_or_else(SendCapacity::default, |connection| {
            connection.send_capacity(&self.config)
        })
    }
}

impl<'a, B> Posting<'a, B> {
    #[inline]
    fn new(connection: Option<&'a mut Connection<B>>, env: Env<'a, B>) -> Self {
        let mut posting = Self {
            connection,
            env,
            send_capacity: SendCapacity::default(),
            room: 0,
            places: 0,
            posted: false,
        };
        posting.look();
        posting
    }

    /// What [`Posting::send`] may be given now; nothing when the connection is gone.
    #[inline]
    pub fn send_capacity(&self) -> SendCapacity {
        self.send_capacity
    }

    /// As [`Stack::send`].
    ///
    /// # Errors
    /// The buffer comes back with the reason.
    #[inline(always)]
    pub fn send(&mut self, segment: Outgoing<B>) -> Result<(), SendError<B>> {
        let len = segment.len as usize;
        let fits = (1..=self.send_capacity.mss).contains(&len) && self.places > 0;
        let Some(connection) = self.connection.as_deref_mut().filter(|_| fits) else {
            return Err(self.refuse(segment));
        };
        if !self.posted {
            connection.begin_posting(&self.env);
            self.posted = true;
        }
        connection.post(&mut self.env, segment);
        self.places -= 1;
        self.room = self.room.saturating_sub(len);
        self.send_capacity.queued += 1;
        self.send_capacity.room = if self.places > 0 { self.room } else { 0 };
        if connection.is_oversized(len as u32) {
            self.look_again();
        }
        debug_assert_eq!(self.send_capacity, self.seen(), "as a look would find it");
        Ok(())
    }

    /// Looks at the connection as it is.
    #[inline(always)]
    fn look(&mut self) {
        if let Some(connection) = self.connection.as_deref() {
            self.room = connection.room_behind();
            self.places = connection.places(self.env.config);
            self.send_capacity = connection.outlook_with(self.room, self.places);
        }
    }

    #[cold]
    fn look_again(&mut self) {
        self.look();
    }

    fn seen(&self) -> SendCapacity {
        let connection = self.connection.as_deref();
        connection.map_or_else(SendCapacity::default, |connection| {
            connection.send_capacity(self.env.config)
        })
    }

    #[cold]
    fn refuse(&self, segment: Outgoing<B>) -> SendError<B> {
        let connection = self.connection.as_deref();
        let refusal = connection.and_then(|it| it.refusal(self.env.config, segment.len));
        debug_assert!(connection.is_none() || refusal.is_some(), "counted wrongly");
        SendError {
            buf: segment.buf,
            reason: refusal.unwrap_or(SendRefusal::Gone),
        }
    }

    /// Whether anything was queued, which is complete with this.
    #[inline]
    fn end(self) -> bool {
        if let Some(connection) = self.connection.filter(|_| self.posted) {
            connection.end_posting(&self.env);
        }
        self.posted
    }
}
