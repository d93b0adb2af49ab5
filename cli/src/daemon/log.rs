//! The daemon's log: a line an event on standard error, with the event's name, its time and its fields, for people or as JSON.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value};

/// A longer text of a field is cut.
const TEXT_MAX_BYTES: usize = 512;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    // `event unix_s=time field=value field="value with spaces"`. Comments that clap shows would put each option on lines of its own.
    #[default]
    Text,
    // `{"event": "...", "unix_s": ..., "field": ...}`
    Json,
}

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Log {
    pub(super) format: Format,
    pub(super) is_quiet: bool,
}

impl Log {
    /// Writes a line. If standard error is a full pipe or a stopped terminal, the line is dropped: the daemon must not wait.
    pub(super) fn tell(self, event: &str, fields: &[(&str, Value)]) {
        if self.is_quiet {
            return;
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let output = io::stderr();
        let has_room = poll(&mut [PollFd::new(&output, PollFlags::OUT)], Some(&at_once));
        if has_room == Ok(1) {
            let since = UNIX_EPOCH.elapsed().unwrap_or_default();
            let unix_s = (since.as_secs_f64() * 1e3).round() / 1e3;
            let _ = writeln!(output.lock(), "{}", self.line(unix_s, event, fields));
        }
    }

    fn line(self, unix_s: f64, event: &str, fields: &[(&str, Value)]) -> String {
        if self.format == Format::Json {
            let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), short(value)));
            let head = [("event".to_owned(), event.into()), ("unix_s".to_owned(), unix_s.into())];
            return Value::Object(head.into_iter().chain(fields).collect::<Map<_, _>>())
                .to_string();
        }
        let field = |(name, value): &(&str, Value)| match &short(value) {
            // Its quotes escape control characters too.
            Value::String(text) => format!(" {name}={text:?}"),
            value => format!(" {name}={value}"),
        };
        let fields: String = fields.iter().map(field).collect();
        format!("foretell: {event} unix_s={unix_s:.3}{fields}")
    }
}

/// The value, cut if it is a long text: a line fits into a pipe at once.
fn short(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_MAX_BYTES => {
            text.chars().take(TEXT_MAX_BYTES / 4).collect::<String>().into()
        }
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_and_no_control_characters() {
        let fields = [("run", 3.into()), ("command", "sh -c \x1b[2J\n\"x\"".into())];
        let line = |format| Log { format, is_quiet: false }.line(1.5, "run_begins", &fields);
        let text = line(Format::Text);
        let expected =
            r#"foretell: run_begins unix_s=1.500 run=3 command="sh -c \u{1b}[2J\n\"x\"""#;
        assert_eq!(text, expected);
        let json: Value = serde_json::from_str(&line(Format::Json)).expect("JSON");
        assert_eq!((&json["event"], &json["run"]), (&"run_begins".into(), &3.into()));
        assert_eq!(json["unix_s"], 1.5);
    }
}
