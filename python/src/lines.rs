//! Lines of a file, from a window of its bytes. A new window is read when a line goes beyond the old one.
//!
//! Only the file's position says where the next line begins. A window is therefore never stale: it holds bytes of the open
//! version, from some offset on.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of the first window, and of the largest one for lines in order. A longer line gets a larger window.
const WINDOW_MIN_BYTES: u64 = 16 << 10;
const WINDOW_MAX_BYTES: u64 = 256 << 10;

struct Window {
    start: u64,
    bytes: Py<PyBytes>,
    /// Bytes of the next window, if lines go on beyond this one.
    next_bytes: u64,
}

/// The window of one file.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Option<Window>>);

impl Lines {
    /// The line that begins at byte `at` of a file of `size` bytes. It ends with `\n`, at the end of the file, or after `most`
    /// bytes. `read` takes an offset and a length, and may release the interpreter.
    pub(crate) fn line(
        &self,
        py: Python<'_>,
        (at, size): (u64, u64),
        most: u64,
        read: impl Fn(u64, u64) -> PyResult<Py<PyBytes>>,
    ) -> PyResult<Py<PyBytes>> {
        let left = size.saturating_sub(at).min(most);
        if left == 0 {
            return Ok(PyBytes::new(py, b"").unbind());
        }
        // The window is taken out, so no thread waits for the lock while this one reads; another thread reads its own window.
        let known = self.lock().take();
        let mut window = match known {
            Some(window) if window.covers(py, at) => window,
            Some(window) if at == window.end(py) => window.read_on(at, &read)?,
            _ => {
                let bytes = read(at, WINDOW_MIN_BYTES)?;
                Window { start: at, bytes, next_bytes: 2 * WINDOW_MIN_BYTES }
            }
        };
        let mut searched = 0;
        loop {
            let there = &window.bytes.as_bytes(py)[(at - window.start) as usize..];
            let there = &there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            let end = memchr::memchr(b'\n', &there[searched..]).map(|found| searched + found + 1);
            if let Some(end) = end.or((there.len() as u64 == left).then_some(there.len())) {
                let line = PyBytes::new(py, &there[..end]).unbind();
                *self.lock() = Some(window);
                return Ok(line);
            }
            // The line goes beyond the window: read a window that begins with the line.
            searched = there.len();
            window.next_bytes = window.next_bytes.max(2 * searched as u64);
            window = window.read_on(at, &read)?;
        }
    }

    /// Releases the memory.
    pub(crate) fn clear(&self) {
        let window = self.lock().take();
        drop(window);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Window>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Window {
    fn end(&self, py: Python<'_>) -> u64 {
        self.start + self.bytes.as_bytes(py).len() as u64
    }

    fn covers(&self, py: Python<'_>, at: u64) -> bool {
        (self.start..self.end(py)).contains(&at)
    }

    fn read_on(
        self,
        at: u64,
        read: impl Fn(u64, u64) -> PyResult<Py<PyBytes>>,
    ) -> PyResult<Window> {
        let bytes = read(at, self.next_bytes)?;
        let next_bytes = (2 * self.next_bytes).min(WINDOW_MAX_BYTES);
        Ok(Window { start: at, bytes, next_bytes })
    }
}
