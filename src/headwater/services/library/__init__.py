"""A library of named, versioned, signed interests, patterns and triggers: values, rules and catalogue; no network."""
