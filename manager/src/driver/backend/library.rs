//! Libraries of file systems, loaded when a file of theirs is met: foretell is built without them, and runs where they are not.

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// A loaded library. It stays loaded until the process ends, so its functions stay valid.
#[derive(Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: the handle is only passed to `dlsym`, which may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the first of `names` that can be had: names of libraries or paths.
    ///
    /// # Errors
    /// In words, of the last name.
    pub(crate) fn open(names: &[&str]) -> Result<Self, String> {
        let mut why = "it has no name".to_owned();
        for name in names {
            let Ok(name) = CString::new(*name) else { continue };
            // SAFETY: the name is a C string. The library's own initialisation runs; it is the file system's.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            match NonNull::new(handle) {
                Some(handle) => return Ok(Library { handle }),
                None => why = last_error(),
            }
        }
        Err(why)
    }

    /// The address of a function.
    ///
    /// # Errors
    /// In words, if the library has none of this name.
    pub(crate) fn function(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the handle is of a loaded library, and the name a C string.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(last_error)
    }
}

/// Why the last call of this thread failed.
fn last_error() -> String {
    // SAFETY: the message, if there is one, is a C string that lives until the next call of this thread.
    let text = unsafe {
        let message = libc::dlerror();
        (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "it cannot be loaded".into())
}
