package next

import "slices"

// Texts returns all statements by their names, as PostgreSQL gets them, also with locks where they differ.
func (d *Driver) Texts() (names []string, texts map[string]string) {
	texts = map[string]string{}
	for name := range templates() {
		texts[name] = d.names.text(name, false)
		if locked := d.names.text(name, true); locked != texts[name] {
			texts[name+", with locks"] = locked
		}
	}
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, texts
}
