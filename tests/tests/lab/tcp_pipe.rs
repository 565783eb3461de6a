//! `tcp-pipe` against ordinary programs over Linux's TCP: what netcat would do, over our TCP.

#![allow(clippy::unwrap_used)]

mod endings;
mod pipe;
mod streams;
mod windows;
