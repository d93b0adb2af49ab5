//! Names the library as programs that are linked with it look for it. The number counts up when programs have to be compiled
//! anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforetell_store.so.0");
}
