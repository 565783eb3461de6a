//! Whose connection or listener an event is about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rnic::{EventSource, ListenerId, QpNum};

use crate::cm::CmId;
use crate::lock;
use crate::session::Part;

/// The identifiers of a session. One is here before its first event can come, and the lock is held while an event
/// is put on its queue.
#[derive(Default)]
pub(crate) struct Identifiers {
    pub(crate) connections: Mutex<HashMap<QpNum, Arc<CmId>>>,
    pub(crate) listeners: Mutex<HashMap<ListenerId, Arc<CmId>>>,
}

impl Part for Identifiers {
    fn tell(&self, source: EventSource) {
        match source {
            EventSource::QueuePair(num) => {
                if let Some(id) = lock(&self.connections).get(&num) {
                    id.take_connection_events();
                }
            }
            EventSource::Listener(listener) => {
                if let Some(id) = lock(&self.listeners).get(&listener) {
                    id.take_requests();
                }
            }
            _ => {}
        }
    }

    fn queue_pair_gone(&self, num: QpNum) {
        if let Some(id) = lock(&self.connections).remove(&num) {
            id.queue_pair_gone();
        }
    }

    fn device_gone(&self) {
        for id in lock(&self.connections).values() {
            id.device_gone();
        }
        for id in lock(&self.listeners).values() {
            id.device_gone();
        }
    }
}
