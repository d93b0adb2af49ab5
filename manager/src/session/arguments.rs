//! Arguments of processes as hints: taken over when a program introduces itself, closed when its process has ended.

use foretell_policy::{HinterId, ReaderId};

use super::Session;
use crate::lineage::{Lineage, ProcessId};
use crate::process_files::ProcessFiles;
use crate::programs::Program;
use crate::source::Setting;
use crate::source::arguments::{CommandLine, may_name_files};
use crate::sources::Origin;

/// Where arguments of processes come from and go to.
pub(crate) struct Arguments {
    pub(crate) lineage: Lineage,
}

impl Arguments {
    /// For a run of the command line `first`.
    pub(super) fn new(first: Setting) -> Self {
        Arguments { lineage: Lineage::new(first) }
    }
}

impl Session {
    /// Takes over the arguments of a program that has begun. `parent` is its process's parent, as far as it is known. Returns
    /// whether there are any to disclose.
    pub(super) fn take_arguments(&mut self, program: &Program, parent: Option<ProcessId>) -> bool {
        let Some(Arguments { lineage }) = &mut self.arguments else { return false };
        let Some(files) = &mut self.files else { return false };
        let ReaderId(process) = program.reader();
        if process == 0 {
            return false; // It has no number in this namespace.
        }
        lineage.note_process(process);
        let line = match files.command_line(process) {
            Some(line) if may_name_files(line) && !lineage.is_first(line) => {
                CommandLine::from_bytes(line)
            }
            _ => return false,
        };
        let Some(working_folder) = files.working_folder(process) else { return false };
        if program.has_ended() {
            return false; // Its number may be another process's.
        }
        let parent_of = |of| match parent {
            Some(parent) if of == process => Some(parent),
            _ => ProcessFiles::parent(of),
        };
        let (policy, streams, now) = (&mut self.policy, &mut self.streams, self.clock.elapsed());
        let now = foretell_policy::Nanos(now.as_nanos() as u64);
        lineage.begin(process, (line, working_folder), parent_of, || {
            *streams += 1;
            let stream = policy.open_stream(now, HinterId(process), None);
            policy.set_source(stream, Origin::Arguments.id());
            stream
        })
    }

    /// Discloses words of processes as far as there is room.
    pub(super) fn take_words(&mut self) {
        let Some(mut arguments) = self.arguments.take() else { return };
        while let Some((stream, word)) =
            arguments.lineage.next_word(|process| self.hears(HinterId(process)))
        {
            self.disclose_guess(stream, word);
        }
        self.arguments = Some(arguments);
    }

    /// Closes the streams of a process that has ended. What was fetched for it and not read is free to be evicted.
    pub(super) fn end_arguments(&mut self, ReaderId(process): ReaderId) {
        let Some(arguments) = &mut self.arguments else { return };
        let streams = arguments.lineage.end(process);
        let Some(&words) = streams.first() else { return };
        self.streams -= 1;
        self.feeds.retain(|feed| feed.owner != Some(words));
        self.waiting.drop_folders_of(words);
        let now = self.now();
        streams.into_iter().for_each(|stream| self.policy.close(now, stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session;

    const PROCESS: ProcessId = 7;

    fn disclosing(words: &[&str]) -> Session {
        let mut session = session();
        let first = Setting { command: vec!["sh".into()], working_folder: None };
        session.arguments = Some(Arguments::new(first));
        let stream = session.policy.open_stream(session.now(), HinterId(PROCESS), None);
        session.streams += 1;
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let line = (CommandLine::from_words(&words), None);
        let lineage = &mut session.arguments.as_mut().expect("/proc is there").lineage;
        assert!(lineage.begin(PROCESS, line, |_| None, || stream));
        session.take_words();
        session
    }

    fn turn(session: &mut Session) {
        session.turn();
        session.wait(Some(std::time::Duration::from_millis(1)));
    }

    #[test]
    fn words_that_are_not_looked_up_when_their_process_ends_are_no_hints() {
        let mut session = disclosing(&["cat", "/no/a", "/no/b"]);
        assert_eq!((session.waiting.names(), session.is_active()), (2, true));
        session.end_arguments(ReaderId(PROCESS));
        session.take_in();
        assert_eq!((session.waiting.names(), session.waiting.bytes(), session.streams), (0, 0, 0));
        assert!(!session.is_active());
        assert_eq!(session.report().hints.given, 0);
    }

    #[test]
    fn files_below_a_folder_are_let_go_with_the_process_that_named_it() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), [1; 100]).expect("written");
        let path = folder.path().to_str().expect("text").to_owned();
        let mut session = disclosing(&["grep", "-r", "/no/such", &path]);
        while session.policy.counts().hints_resolved == 0 {
            turn(&mut session);
        }
        while session.policy.counts().prefetched + session.policy.counts().already_cached == 0 {
            turn(&mut session);
        }
        session.end_arguments(ReaderId(PROCESS));
        assert_eq!((session.policy.pending_blocks(), session.streams), (0, 0));
        assert!(session.feeds.is_empty() && !session.waiting.has_folders());
        assert_eq!(session.report().hints.given, 1, "the file");
    }

    #[test]
    fn a_folder_is_not_listed_for_a_process_that_has_ended() {
        let path = std::env::temp_dir();
        let mut session = disclosing(&["grep", "-r", path.to_str().expect("text")]);
        session.start_fetches();
        session.end_arguments(ReaderId(PROCESS));
        while session.policy.counts().hints_void == 0 {
            turn(&mut session);
        }
        assert!(session.feeds.is_empty() && !session.waiting.has_folders());
    }
}
