//! Every symbol that programs may ask for, with its version.

mod absent;
mod blocking;
mod cm;
mod device;
mod objects;
mod rsocket_calls;
mod rsocket_poll;
mod rsockets;
mod strings;
