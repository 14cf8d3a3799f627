//! Values of configuration entries, checked while they are parsed.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use forebay_protocol::space::BLOCK_BYTES;
use forebay_units::Bytes;
use serde::Deserialize;

/// A size other than zero.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Size(pub Bytes);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Size, String> {
        match text.parse() {
            Ok(Bytes(0)) => Err("the size must not be zero".to_owned()),
            Ok(size) => Ok(Size(size)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A size of whole blocks.
#[derive(Deserialize)]
#[serde(try_from = "Size")]
pub(super) struct Stripe(pub Bytes);

impl TryFrom<Size> for Stripe {
    type Error = String;

    fn try_from(Size(size): Size) -> Result<Stripe, String> {
        let whole = size.0.is_multiple_of(BLOCK_BYTES).then_some(Stripe(size));
        whole.ok_or_else(|| format!("a stripe must be a multiple of {BLOCK_BYTES} bytes"))
    }
}

/// An address and port that other hosts can connect to.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ListenAddress(pub SocketAddr);

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<ListenAddress, String> {
        if !text.contains(':') {
            return Err(format!(
                "`{text}` has no port; write `host:port`, for instance `{text}:7510`"
            ));
        }
        let found = text.to_socket_addrs();
        let mut found = found.map_err(|error| format!("`{text}` is not an address: {error}"))?;
        let address = found.next().ok_or_else(|| format!("`{text}` has no address"))?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(format!(
                "other hosts cannot connect to `{text}`; write an address of this host and a port"
            ));
        }
        Ok(ListenAddress(address))
    }
}

/// An absolute path.
#[derive(Deserialize)]
#[serde(try_from = "PathBuf")]
pub(super) struct AbsolutePath(pub PathBuf);

impl TryFrom<PathBuf> for AbsolutePath {
    type Error = String;

    fn try_from(path: PathBuf) -> Result<AbsolutePath, String> {
        if path.is_absolute() {
            return Ok(AbsolutePath(path));
        }
        Err(format!("`{}` is relative; write a path that begins with `/`", path.display()))
    }
}

/// The name of a pool or node.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Name, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if text.is_empty() || text.len() > 255 || !text.chars().all(plain) {
            return Err(format!("`{text}` is not a name; use letters, digits and `_-.`"));
        }
        Ok(Name(text))
    }
}

/// A time of some length, in milliseconds.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Period(pub u64);

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Period, String> {
        parse_period(&text).map(Period)
    }
}

/// Milliseconds of a time such as `90s`, `12h` or `30d`.
///
/// # Errors
/// The text is not a positive number with a unit.
pub fn parse_period(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("`{text}` is not a time above 0; write a number and s, m, h or d, such as `30d`")
    };
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit_ms = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).filter(|period| *period > 0).ok_or_else(wrong)
}

/// A user, by number or name.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct User(pub u32);

impl TryFrom<String> for User {
    type Error = String;

    fn try_from(text: String) -> Result<User, String> {
        if let Ok(uid) = text.parse() {
            return Ok(User(uid));
        }
        match nix::unistd::User::from_name(&text) {
            Ok(Some(user)) => Ok(User(user.uid.as_raw())),
            Ok(None) | Err(_) => Err(format!("there is no user `{text}`")),
        }
    }
}
