//! Panics for tests, where `FORETELL_TEST_FAULT` asks for them: `open` when a file is opened, `read` in a thread that reads. Builds
//! without debug assertions have none of it.

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

/// The same, unless the environment asks for a fault.
pub(crate) fn opened(opened: Opened) -> Opened {
    match std::env::var("FORETELL_TEST_FAULT").as_deref() {
        Ok("open") => panic!("a test asked for it"),
        Ok("read") => Opened { object: Arc::new(Faulty), ..opened },
        _ => opened,
    }
}
