//! A tap: every frame of an interface goes to AF_XDP sockets, and none to the kernel's stack.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use aya::maps::{MapData, PerCpuArray, XskMap};
use aya::{Ebpf, EbpfLoader};

use crate::attach::{self, Mode, ModePreference};
use crate::error::SteeringError;
use crate::load::{self, Loadable, Variant};
use crate::program::MAX_QUEUES;

/// Names of the program's counters: `enum counter` in `tap.bpf.c`, in its order.
const COUNTERS: [&str; 2] = ["redirected", "no_socket"];

/// Both variants of the program, compiled by build.rs.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tap.bpf.o"));

/// A program on one interface that takes all its frames. Dropping it detaches the program, and so
/// does the end of the process.
pub struct Tap {
    object: Object,
    mode: Mode,
    sockets: XskMap<MapData>,
    counters: PerCpuArray<MapData, u64>,
    /// The program is attached as long as these are open.
    _links: Vec<OwnedFd>,
}

/// The loaded object, without its maps.
struct Object {
    ebpf: Ebpf,
    /// For messages.
    interface: String,
}

impl Loadable for Object {
    fn load(&mut self, variant: Variant) -> Result<BorrowedFd<'_>, SteeringError> {
        let name = match variant {
            Variant::Frags => "tap_frags",
            Variant::Plain => "tap",
        };
        load::load(&mut self.ebpf, &self.interface, name)
    }
}

impl Tap {
    /// Attaches the program to an interface of the calling thread's network namespace, which hears
    /// nothing from now on: what arrives on a queue without a socket is dropped.
    ///
    /// # Errors
    ///
    /// [`SteeringError`] when the interface, its driver or the process's privileges do not allow
    /// any of the modes asked for.
    pub fn attach(interface: &str, preference: ModePreference) -> Result<Tap, SteeringError> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            SteeringError::from_aya(interface, "make the maps of the tap", error)
        };
        let mut ebpf = EbpfLoader::new()
            .load(OBJECT)
            .map_err(|error| failed(&error))?;
        let mut map = |name: &'static str| {
            ebpf.take_map(name).ok_or_else(|| SteeringError::Load {
                interface: interface.to_owned(),
                reason: format!("it has no map {name}"),
            })
        };
        let (sockets, counters) = (map("SOCKETS")?, map("COUNTERS")?);
        let sockets = XskMap::try_from(sockets).map_err(|error| failed(&error))?;
        let counters = PerCpuArray::try_from(counters).map_err(|error| failed(&error))?;
        let interface = interface.to_owned();
        let mut object = Object { ebpf, interface };
        let name = object.interface.clone();
        let (links, mode) = attach::attach(&mut object, &name, &[&name], preference)?;
        Ok(Tap {
            object,
            mode,
            sockets,
            counters,
            _links: links,
        })
    }

    /// The mode that the program runs in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn interface(&self) -> &str {
        &self.object.interface
    }

    /// Gives frames that arrive on receive queue `queue` to an AF_XDP socket, which must be bound
    /// to that queue. The kernel forgets it when the socket closes.
    ///
    /// # Errors
    ///
    /// When the queue is not below [`MAX_QUEUES`], or the kernel refuses.
    pub fn set_queue(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteeringError> {
        let interface = self.interface();
        if queue >= MAX_QUEUES {
            return Err(SteeringError::NoSuchQueue {
                interface: interface.to_owned(),
                queue,
                most: MAX_QUEUES,
            });
        }
        let interface = interface.to_owned();
        self.sockets.set(queue, socket, 0).map_err(|error| {
            SteeringError::from_aya(&interface, "give a queue to an AF_XDP socket", &error)
        })
    }

    /// How many frames were taken (`redirected`), and how many found no socket, since attaching.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::with_capacity(COUNTERS.len());
        for (index, name) in (0..).zip(COUNTERS) {
            match self.counters.get(&index, 0) {
                Ok(values) => all.push((name, values.iter().sum())),
                Err(error) => log::warn!("{}: tap counter {name}: {error}", self.interface()),
            }
        }
        all
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("interface", &self.interface())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
