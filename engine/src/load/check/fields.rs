//! Checks of single fields: ranges, paths, headers, names. Each returns the problem with the path of its field.

use crate::load::problem::Problem;

pub type Checked = Result<(), Problem>;

/// The longest pause, timeout and ramp: sums of instants and a few of these then stay far below the limit of 64 bits.
pub const DAY_NS: u64 = 86_400_000_000_000;

pub fn check_path(at: &str, path: &str) -> Checked {
    if !path.starts_with('/') {
        return wrong(at, format!("{path:?} must start with /"));
    }
    if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return wrong(at, "holds a space or control character; percent-encode it (space: %20)");
    }
    Ok(())
}

pub fn check_headers(at: &str, headers: &[(String, String)]) -> Checked {
    for (i, (name, value)) in headers.iter().enumerate() {
        if !is_name(name) {
            return wrong(&format!("{at}[{i}]"), format!("{name:?} is no header name"));
        }
        if value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
            return wrong(&format!("{at}[{i}]"), format!("the value of {name} holds a control character"));
        }
    }
    Ok(())
}

pub fn between(least: u64, most: u64, path: &str, value: u64) -> Checked {
    at_least(least, path, value)?;
    at_most(most, path, value)
}

pub fn at_least(least: u64, path: &str, value: u64) -> Checked {
    if value < least { wrong(path, format!("{value} must be at least {least}")) } else { Ok(()) }
}

pub fn at_most(most: u64, path: &str, value: u64) -> Checked {
    if value > most { wrong(path, format!("{value} must be at most {most}")) } else { Ok(()) }
}

pub fn wrong(path: &str, message: impl std::fmt::Display) -> Checked {
    Err(Problem::spec(path, message))
}

/// True for a token of RFC 9110, such as the name of a header or of a subprotocol.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token)
}

/// RFC 9110 `tchar`.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
