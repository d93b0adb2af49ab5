//! Builds the C libraries beside the binary, so that `cargo build` alone gives a working `foretell`. Links into the binary the
//! part of the interposing library that decides which programs get the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let root = manifest.parent().expect("the crate lies in the workspace");
    // OUT_DIR is <target>/<profile>/build/<crate>/out; the binary goes to <target>/<profile>.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let beside_binary = out.ancestors().nth(3).expect("cargo's layout of the target folder");
    for folder in [
        "preload",
        "preload/src",
        "preload/include",
        "protocol/c",
        "protocol/include",
        "mpi",
        "mpi/src",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    fs::create_dir_all(beside_binary).expect("the target folder can be written");
    for folder in ["preload", "mpi"] {
        make(&root.join(folder), beside_binary);
    }
    println!("cargo::rustc-link-search=native={}", beside_binary.display());
    println!("cargo::rustc-link-lib=static=foretell_executable");
}

fn make(folder: &Path, out: &Path) {
    let made = Command::new("make")
        .arg("--no-print-directory")
        .arg("-C")
        .arg(folder)
        .arg(format!("OUT={}", out.display()))
        // Make's own variables would hand this make the job server and goals of an outer one.
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("MAKELEVEL")
        .status();
    match made {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the C libraries failed ({status}); see the lines above"),
        Err(error) => {
            panic!("cannot run make ({error}); it comes with the package build-essential")
        }
    }
}
