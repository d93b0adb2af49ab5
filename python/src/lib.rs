//! The managed cache for Python: what is compiled of the package `foretell`.
//!
//! The classes here are the bases of those in `foretell/*.py`, where the documentation for users is, and all that can as
//! well be said in Python. Here is what must be quick, and what waits.
//!
//! By module: `store` and `file` are the classes, `lines` how a file gives lines, `listing` what a store has, `stream` what discloses,
//! `wait` how a read waits and is given up, `completions` where what nobody waits for ends, `process` what a fork leaves of it,
//! `errors` which error becomes which exception, `panics` what becomes of a panic, `faults` panics for tests.
//!
//! Rules. The interpreter is let go of before anything that may wait. Locks of this crate are held only by who has the
//! interpreter and does not let go of it meanwhile, so that they are free when a process forks; others are in what belongs to
//! one process.

mod completions;
mod errors;
#[cfg(debug_assertions)]
mod faults;
mod file;
mod lines;
mod listing;
mod panics;
mod process;
mod store;
mod stream;
mod wait;

use foretell_heap::Heap;
use pyo3::prelude::*;

/// What is allocated here, and not by the interpreter.
#[global_allocator]
static HEAP: Heap = Heap;

/// The compiled part of the package.
#[pymodule]
mod _foretell {
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::errors::error_of;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::listing::Listed;
    #[pymodule_export]
    use crate::store::{Opening, Store};
    #[pymodule_export]
    use crate::stream::Stream;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::panics::install();
        Ok(())
    }
}
