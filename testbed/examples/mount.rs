//! Mounts an array until it is unmounted, then prints its report as JSON:
//! `cargo run --example mount -- BACKING MNT [DISKS] [LAYOUT] [TIME_SCALE] [ORDER]`, `umount MNT`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;

use foretell_testbed::{Array, ArrayOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [backing, mountpoint, rest @ ..] = arguments.as_slice() else {
        return Err("usage: mount BACKING MNT [DISKS] [LAYOUT] [TIME_SCALE] [ORDER]".into());
    };
    let mut options = ArrayOptions::default();
    if let Some(disks) = rest.first() {
        options.disks = disks.parse()?;
    }
    if let Some(layout) = rest.get(1) {
        options.layout = layout.parse()?;
    }
    if let Some(time_scale) = rest.get(2) {
        options.time_scale = time_scale.parse()?;
    }
    if let Some(order) = rest.get(3) {
        options.order = order.parse()?;
    }
    let array = Array::mount(Path::new(backing), Path::new(mountpoint), &options)?;
    array.wait();
    println!("{}", serde_json::to_string_pretty(&array.unmount()?)?);
    Ok(())
}
