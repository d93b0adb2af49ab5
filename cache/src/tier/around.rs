//! What a tier leaves to the back end whose blocks it keeps.

/// Methods of a `Backend` around another one, `self.$inner`. Most are those of the other one. What `open` and `open_found`
/// return goes through `self.$keeps`, which may have its blocks kept.
macro_rules! around {
    ($inner:ident, $keeps:ident) => {
        fn open(&self, path: &str) -> Result<Opened, BackendError> {
            Ok(self.$keeps(path, self.$inner.open(path)?))
        }

        fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
            Ok(self.$keeps(path, self.$inner.open_found(path, file)?))
        }

        fn find(&self, path: &str) -> Result<Found, BackendError> {
            self.$inner.find(path)
        }

        fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
            self.$inner.list(path)
        }

        fn read_link(&self, path: &str, link: &FileInfo) -> Result<PathBuf, BackendError> {
            self.$inner.read_link(path, link)
        }

        fn space(&self) -> Result<Option<StatVfs>, BackendError> {
            self.$inner.space()
        }

        fn lists_all_of_files(&self) -> bool {
            self.$inner.lists_all_of_files()
        }

        fn depth(&self) -> usize {
            self.$inner.depth()
        }
    };
}

pub(super) use around;
