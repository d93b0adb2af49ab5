//! The managed cache for Python: the compiled part of the package `foretell`.
//!
//! The classes here are the bases of those in `foretell/*.py`, which have the documentation for users and everything that can
//! be written in Python. Here is the code that must be fast, and the code that waits.
//!
//! | module | what it holds |
//! |---|---|
//! | `store`, `file`, `stream`, `listing` | the classes |
//! | `hints` | hints to the manager of `foretell run` and to a mount |
//! | `lines` | lines of a file |
//! | `reads` | how Python reads, and how a read is given up |
//! | `keeper` | memory of reads in flight |
//! | `wait` | waits that Ctrl-C ends |
//! | `completions` | results of reads and openings that no thread waits for |
//! | `process` | values that belong to one process, across forks |
//! | `errors`, `panics` | which error becomes which exception; panics |
//! | `faults` | panics for tests |
//!
//! Rules:
//!
//! 1. The interpreter is released before anything that may wait.
//! 2. A thread takes a lock of this crate only while it holds the interpreter, and does not release the interpreter before the
//!    lock. So these locks are free when a process forks. All other locks are in values that belong to one process.

mod completions;
mod errors;
#[cfg(debug_assertions)]
mod faults;
mod file;
mod hints;
mod keeper;
mod lines;
mod listing;
mod panics;
mod process;
mod reads;
mod store;
mod stream;
mod wait;

use foretell_heap::Heap;
use pyo3::prelude::*;

/// Allocations of this crate; the interpreter's are its own.
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
    use crate::hints::{Manager, Mount};
    #[pymodule_export]
    use crate::listing::Listed;
    #[pymodule_export]
    use crate::store::{Opening, Store};
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::wait::end;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::panics::install();
        crate::wait::prepare(module)
    }
}
