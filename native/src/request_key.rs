//! Canonical requests: two requests with the same key have the same answer.
//!
//! Go writes the entries of a map in random order, so the bytes of one node's request hardly ever repeat. An answer
//! about a node depends on its providerID and name alone (a provider that looks at labels is never cached), and the key
//! is made of those two.

/// How the key of a method's request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Never answered from the table: mutations, Refresh, Cleanup, prices.
    None,
    /// The whole message.
    Message,
    /// The providerID and the name of the node in field 1.
    Node,
}

const PROVIDER_ID: u64 = 1;
const NAME: u64 = 2;
const LABELS: u64 = 3;
const ANNOTATIONS: u64 = 4;
const LENGTH_DELIMITED: u64 = 2;
/// Longer requests are not worth a place in the table.
const LONGEST: usize = 4096;

/// The key of a request; `None` when it has none, or is not written as protobuf libraries write it.
pub fn request_key(kind: KeyKind, method: u8, message: &[u8]) -> Option<Box<[u8]>> {
    match kind {
        KeyKind::None => None,
        KeyKind::Message if message.len() > LONGEST => None,
        KeyKind::Message => Some([&[method], message].concat().into()),
        KeyKind::Node => {
            let (provider_id, name) = node_of(message)?;
            let length = u32::try_from(provider_id.len()).ok()?.to_le_bytes();
            let is_short = provider_id.len() + name.len() <= LONGEST;
            is_short.then(|| [&[method], &length[..], provider_id, name].concat().into())
        }
    }
}

/// The providerID and the name of the one node in a request. Whatever else there is goes to Python.
fn node_of(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut outer = Fields { rest: message };
    let (number, node) = outer.next()?;
    if number != 1 || !outer.rest.is_empty() {
        return None;
    }
    let (mut provider_id, mut name) = (None, None);
    let mut fields = Fields { rest: node };
    while !fields.rest.is_empty() {
        let (number, value) = fields.next()?;
        match number {
            PROVIDER_ID if provider_id.is_none() => provider_id = Some(text(value)?),
            NAME if name.is_none() => name = Some(text(value)?),
            LABELS | ANNOTATIONS if is_entry(value) => {}
            _ => return None,
        }
    }
    Some((provider_id.unwrap_or_default(), name.unwrap_or_default()))
}

/// Whether this is a map entry of two strings. A broken one is bad input, and Python says so.
fn is_entry(value: &[u8]) -> bool {
    let is_ascii = value.is_ascii(); // one look for both strings, and nearly always enough
    let mut fields = Fields { rest: value };
    while !fields.rest.is_empty() {
        match fields.next() {
            Some((1 | 2, value)) if is_ascii || text(value).is_some() => {}
            _ => return false,
        }
    }
    true
}

fn text(value: &[u8]) -> Option<&[u8]> {
    std::str::from_utf8(value).ok().map(str::as_bytes)
}

/// The length-delimited fields of a message.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = self.varint()?;
        if tag & 7 != LENGTH_DELIMITED {
            return None;
        }
        let length = usize::try_from(self.varint()?).ok()?;
        let (value, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for position in 0..5 {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).expect("short")], value].concat()
    }

    fn label(key: &str, value: &str) -> Vec<u8> {
        field(3, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    }

    fn key(fields: &[Vec<u8>]) -> Option<Box<[u8]>> {
        request_key(KeyKind::Node, 7, &field(1, &fields.concat()))
    }

    #[test]
    fn the_order_of_labels_does_not_matter() {
        let (id, name) = (field(1, b"sim://a"), field(2, b"a"));
        let (one, other) = (label("x", "1"), label("y", "2"));
        let expected = key(&[id.clone(), name.clone()]);
        assert!(expected.is_some());
        assert_eq!(expected, key(&[id.clone(), name.clone(), one.clone(), other.clone()]));
        assert_eq!(expected, key(&[other, id, one, name]));
    }

    #[test]
    fn ids_and_names_do_not_run_into_each_other() {
        assert_ne!(key(&[field(1, b"ab"), field(2, b"c")]), key(&[field(1, b"a"), field(2, b"bc")]));
        assert_ne!(key(&[field(1, b"a")]), key(&[field(2, b"a")]));
    }

    #[test]
    fn methods_do_not_share_keys() {
        assert_ne!(request_key(KeyKind::Message, 1, b"a"), request_key(KeyKind::Message, 2, b"a"));
        assert_eq!(request_key(KeyKind::None, 1, b"a"), None);
    }

    #[test]
    fn what_a_library_would_not_write_has_no_key() {
        let node = field(1, &field(2, b"a"));
        assert!(request_key(KeyKind::Node, 7, &node).is_some());
        assert_eq!(request_key(KeyKind::Node, 7, &[node.clone(), node.clone()].concat()), None);
        assert_eq!(request_key(KeyKind::Node, 7, &node[..node.len() - 1]), None);
        assert_eq!(request_key(KeyKind::Node, 7, b""), None);
        assert_eq!(key(&[field(2, b"a"), field(2, b"b")]), None);
        assert_eq!(key(&[field(2, b"\xff")]), None);
        assert_eq!(key(&[field(9, b"a")]), None);
        assert_eq!(key(&[field(2, b"a"), field(3, b"\xff")]), None);
        assert_eq!(key(&[vec![0x08, 0x01]]), None);
        assert_eq!(request_key(KeyKind::Node, 7, &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), None);
    }
}
