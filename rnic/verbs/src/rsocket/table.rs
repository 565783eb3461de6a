//! The rsockets of a process, by descriptor.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;

use super::Socket;
use crate::ffi::Outcome;
use crate::per_process::PerProcess;

static TABLE: PerProcess<Table> = PerProcess::new(Table::default);

pub(crate) fn table() -> &'static Table {
    TABLE.get()
}

#[derive(Default)]
pub(crate) struct Table(RwLock<HashMap<c_int, Arc<Socket>>>);

impl Table {
    pub(crate) fn add(&self, socket: Socket) -> c_int {
        let fd = socket.fd();
        let mut sockets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        sockets.insert(fd, Arc::new(socket));
        fd
    }

    pub(crate) fn get(&self, fd: c_int) -> Option<Arc<Socket>> {
        let sockets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sockets.get(&fd).cloned()
    }

    pub(crate) fn find(&self, fd: c_int) -> Outcome<Arc<Socket>> {
        self.get(fd).ok_or(Errno::BADF.into())
    }

    pub(crate) fn remove(&self, fd: c_int) -> Outcome<Arc<Socket>> {
        let mut sockets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        sockets.remove(&fd).ok_or(Errno::BADF.into())
    }
}
