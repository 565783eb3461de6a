//! The library's name and the nodes of its symbol versions; which symbol is of which version stands
//! beside each export.

fn main() {
    println!("cargo::rerun-if-changed=symbols.map");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={here}/symbols.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
}
