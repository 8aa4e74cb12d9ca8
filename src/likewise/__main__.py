from likewise.cli import main

main()
