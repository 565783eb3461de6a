//! This process's session with one device, and the thread that waits for its events.
//!
//! A session knows none of the objects that programs make on it. What a module keeps for a session is a [`Part`]
//! of it, and hears of what happens.

use std::any::Any;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic::{DeviceInfo, Error, EventSource, EventSources, QpNum};
use rustix::io::Errno;

use crate::ffi::{Fail, Outcome};
use crate::lock;

/// What a module keeps for a session. The session's thread tells it of what happens.
pub(crate) trait Part: Any + Send + Sync {
    /// There are events to be taken from an object of the RNIC.
    fn tell(&self, _source: EventSource) {}

    /// From here on no event of this queue pair's connection comes.
    fn queue_pair_gone(&self, _num: QpNum) {}

    fn device_gone(&self) {}
}

/// Stays as long as its process. When the device is gone, the next use of it begins another one.
pub(crate) struct Session {
    rnic: rnic::Context,
    interface: String,
    gone: AtomicBool,
    parts: Mutex<Vec<Arc<dyn Part>>>,
}

impl Session {
    pub(crate) fn begin(rnic: rnic::Context) -> Outcome<Arc<Self>> {
        let sources = rnic.event_sources();
        let session = Arc::new(Self {
            interface: rnic.device_info()?.interface,
            rnic,
            gone: AtomicBool::new(false),
            parts: Mutex::default(),
        });
        let served = session.clone();
        let thread = std::thread::Builder::new().name("rnic-verbs".to_owned());
        let thread = rnic::process::spawn(thread, move || served.serve(&sources));
        thread.map_err(|error| Fail::of(Errno::AGAIN, format!("no thread for events: {error}")))?;
        Ok(session)
    }

    pub(crate) fn rnic(&self) -> &rnic::Context {
        &self.rnic
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// What the device is now; its addresses come and go.
    pub(crate) fn info(&self) -> Outcome<DeviceInfo> {
        Ok(self.rnic.device_info()?)
    }

    /// The number by which the program and its peers know a queue pair.
    pub(crate) fn number_of(&self, qp: QpNum) -> u32 {
        let known = self.rnic.join_number(qp).ok().flatten();
        known.unwrap_or(qp.0)
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let info = self.rnic.device_info();
        info.is_ok_and(|info| info.addresses.contains(&address))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The part of this type, made when it is first asked for.
    pub(crate) fn part<T: Part + Default>(&self) -> Arc<T> {
        let mut parts = lock(&self.parts);
        let found = parts.iter().find_map(|part| {
            let part: Arc<dyn Any + Send + Sync> = part.clone();
            part.downcast::<T>().ok()
        });
        found.unwrap_or_else(|| {
            let made = Arc::<T>::default();
            parts.push(made.clone());
            made
        })
    }

    /// Those that are there now. No lock is held while one is told: it may ask for others.
    fn parts(&self) -> Vec<Arc<dyn Part>> {
        lock(&self.parts).clone()
    }

    pub(crate) fn queue_pair_gone(&self, num: QpNum) {
        for part in self.parts() {
            part.queue_pair_gone(num);
        }
    }

    fn serve(&self, sources: &EventSources) {
        loop {
            match sources.next().wait(Duration::from_secs(3600)) {
                Ok(source) => self.tell(source),
                Err(Error::Timeout { .. }) => {}
                Err(error) => return self.end(&error),
            }
        }
    }

    fn tell(&self, source: EventSource) {
        for part in self.parts() {
            part.tell(source);
        }
    }

    /// The device is gone, and with it everything.
    fn end(&self, error: &Error) {
        log::error!("the RNIC of {} is gone: {error}", self.interface);
        self.gone.store(true, Ordering::Relaxed);
        for part in self.parts() {
            part.device_gone();
        }
    }
}
