//! What the daemon and its clients share: names of objects, control messages and the rings in
//! shared memory.
//!
//! Everything here that comes from the other side is hostile until it was copied and checked.
//! `unsafe` lives in [`shm`] (mappings and raw copies), in the private `ring::raw` (ring words) and in [`find`] (one
//! call of the C library); nowhere else. With `--cfg loom` memory and atomics are a model's (`scripts/loom`).
//!
//! ```
//! use rnic_ipc::control::Request;
//! use rnic_ipc::transport::Channel;
//!
//! let (client, daemon) = Channel::pair()?;
//! client.send(&Request::QueryDevice, &[])?;
//! let (request, descriptors) = daemon.recv::<Request>()?.expect("a request");
//! assert_eq!(request, Request::QueryDevice);
//! assert!(descriptors.is_empty());
//! # Ok::<(), rnic_ipc::transport::TransportError>(())
//! ```

#![deny(unsafe_code)]

pub mod capture;
pub mod control;
pub mod find;
pub mod id;
pub mod inspect;
pub mod kick;
pub mod ring;
#[cfg_attr(loom, path = "shm/modelled.rs")]
pub mod shm;
mod sync;
pub mod threads;
pub mod transport;
pub mod wake;
pub mod work;
