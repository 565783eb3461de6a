//! Against Linux's siw, in a virtual machine that each test boots for its table of cases.

mod failures;
mod peer_kernel;
mod programs;
mod rping;
mod rsocket;
mod stand;
