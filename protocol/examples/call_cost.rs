//! Prints what the interposing library costs per call, as JSON lines: plain, passive (no manager),
//! counting, recording reads, and recording names too. Arguments: the folder that `make -C preload bench OUT=…` filled, and a
//! file to read.
//!
//! The listener's ring is drained all the time, as a manager does.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use foretell_protocol::layout::{INTEREST_NAMES, INTEREST_READS};
use foretell_protocol::{Listener, Message, RingReader};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("usage: call_cost BUILD_FOLDER FILE"));
    };
    let library = folder.join("libforetell_preload.so");
    let program = folder.join("call_cost");
    for mode in ["plain", "passive", "counting", "recording", "naming"] {
        let mut command = Command::new(&program);
        command.arg(&file);
        let listener = Listener::bind()?;
        if mode != "plain" {
            command.env("LD_PRELOAD", &library);
        }
        let interest = match mode {
            "counting" => Some(0),
            "recording" => Some(INTEREST_READS),
            "naming" => Some(INTEREST_READS | INTEREST_NAMES),
            _ => None,
        };
        if let Some(interest) = interest {
            let told = format!("{interest}.0.0.0.0.0.{}", listener.address());
            command.env("FORETELL_PRELOAD", told);
        }
        let output = drained(&listener, &mut command)?;
        print!("{{\"mode\": \"{mode}\", \"costs\": {}}}", String::from_utf8_lossy(&output).trim());
        println!();
    }
    for mode in ["plain", "passive", "counting"] {
        let listener = Listener::bind()?;
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..200 {
            let mut command = Command::new("/bin/true");
            if mode != "plain" {
                command.env("LD_PRELOAD", &library);
            }
            if mode == "counting" {
                command.env("FORETELL_PRELOAD", format!("0.0.0.0.0.0.{}", listener.address()));
            }
            let start = Instant::now();
            command.status()?;
            times.push(start.elapsed());
            while let Some(connection) = listener.accept()? {
                drop(connection);
            }
        }
        times.sort();
        println!("{{\"mode\": \"{mode}\", \"start_of_true_us\": {}}}", times[100].as_micros());
    }
    Ok(())
}

fn drained(listener: &Listener, command: &mut Command) -> std::io::Result<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut rings = Vec::new();
    while child.try_wait()?.is_none() {
        while let Some(mut connection) = listener.accept()? {
            // The program sends its HELLO right after it has connected.
            loop {
                match connection.receive() {
                    Ok(Some(Message::Hello(hello))) => rings.extend(RingReader::map(hello.ring)),
                    Ok(None) => std::thread::yield_now(),
                    _ => break,
                }
            }
        }
        for ring in &mut rings {
            ring.drain(|_| ());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(child.wait_with_output()?.stdout)
}
