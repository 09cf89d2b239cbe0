"""Reading of files that users give: text files and tables. Standard library only."""
