//! The library for MPI-IO: its parts on random views, and its constants against the headers of the MPIs that are installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace").join("mpi")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn random_views_are_read_and_disclosed_byte_for_byte() {
    let scratch = tempfile::tempdir().expect("a folder");
    let made = Command::new("make")
        .args(["--no-print-directory", "-C"])
        .arg(folder())
        .arg(format!("OUT={}", scratch.path().display()))
        .arg(format!("CASES={}", std::env::var("FORETELL_FUZZ_CASES").unwrap_or("300".into())))
        .arg("check")
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make is there");
    assert!(made.status.success(), "{}", text(&made));
}

#[test]
fn the_constants_are_those_of_each_mpi() {
    let scratch = tempfile::tempdir().expect("a folder");
    let mut checked = 0;
    for compiler in ["mpicc", "mpicc.mpich", "mpicc.openmpi", "mpicc_abi"] {
        let program = scratch.path().join(compiler);
        let compiled = Command::new(compiler)
            .args(["-std=gnu11", "-D_GNU_SOURCE", "-Isrc", "tests/abi.c", "src/abi.c", "-ldl"])
            .args(["-lpthread", "-o"])
            .arg(&program)
            .current_dir(folder())
            .output();
        let Ok(compiled) = compiled else { continue };
        assert!(compiled.status.success(), "{compiler}: {}", text(&compiled));
        let run = Command::new(&program).output().expect("it runs");
        assert!(run.status.success(), "{compiler}: {}", text(&run));
        checked += 1;
    }
    if checked == 0 {
        eprintln!("skipped: no compiler of an MPI (mpicc)");
    }
}
