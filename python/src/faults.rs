//! Panics for tests, on request of `FORETELL_TEST_FAULT`: `open` when a file is opened, `read` in a reading thread. Builds
//! without debug assertions do not have this module.

use std::sync::Arc;

use foretell_cache::backend::{Object, Opened, Request};

struct Faulty;

impl Object for Faulty {
    fn start(self: Arc<Self>, request: Request) {
        std::thread::spawn(move || {
            let _request = request;
            panic!("a test asked for it");
        });
    }
}

/// Returns `opened`, or panics or replaces it if the environment asks for a fault.
pub(crate) fn opened(opened: Opened) -> Opened {
    match std::env::var("FORETELL_TEST_FAULT").as_deref() {
        Ok("open") => panic!("a test asked for it"),
        Ok("read") => Opened { object: Arc::new(Faulty), ..opened },
        _ => opened,
    }
}
