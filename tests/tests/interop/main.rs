//! Against Linux's siw, in a virtual machine that each test boots for its table of cases.

mod failures;
mod rping;
mod rsocket;
