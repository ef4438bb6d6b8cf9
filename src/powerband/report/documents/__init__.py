"""An analysis as JSON, JUnit XML and Markdown."""
