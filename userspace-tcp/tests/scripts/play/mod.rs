//! Reading a script and playing it against a [`Host`]: a TCP by itself, or a product with TCP in it, which includes
//! this directory as a module of its own test.

pub mod files;
pub mod host;
pub mod laws;
pub mod lexer;
pub mod look;
pub mod machine;
pub mod parse;
pub mod report;
pub mod syntax;
pub mod wire;
