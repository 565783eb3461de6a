//! MPA: Marker PDU Aligned framing over TCP (RFC 5044), with enhanced connection establishment
//! (RFC 6581). [`startup`] is the Startup Phase, [`fpdu`] the Full Operation Phase. Knows bytes in
//! order and an EMSS, nothing else of TCP.

mod error;
pub mod fpdu;
pub mod marker;
pub mod startup;

pub use error::MpaError;
